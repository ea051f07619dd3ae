"""Tables and figures of the papers that vioc implements; ``python -m studies`` lists them."""
