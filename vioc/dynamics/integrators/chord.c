/* A step of `chord.extrapolated_step` for LANES samples side by side; each iterates until its own correction is
   small. Before this stand the sizes and the functions of chord.py:
   seed (carry) -> q; factorize (x, seed, u, t, dt, parameters) -> y, factors, whether singular;
   iterate (y, x, seed, u, t, dt, parameters, factors) -> g, x_next, multipliers, |g|; check (q, parameters).
   What lanes gain is said in many.c. */

static marks step(const lanes *carry, const lanes *const *of, lanes *next, lanes *multipliers, lanes *error,
                  lanes *work) {
  lanes *start = work, *y = start + ND, *g = y + ND, *w = g + ND, singular, off;
  const lanes *from[] = {carry}, *context[] = {carry, start, of[0], of[1], of[2], of[3]};
  const lanes *args[] = {y, carry, start, of[0], of[1], of[2], of[3], w}, *checked[] = {next, of[3]};
  lanes *seeded[] = {start}, *factored[] = {y, w, &singular}, *found[] = {g, next, multipliers, error};
  lanes *left[] = {&off};
  marks going = ~(marks){0};
  seed(from, seeded);
  factorize(context, factored);
  for (int count = 1;; count++) {
    iterate(args, found); /* where it has ended, the same again */
    lanes largest = ALL(0.0);
    for (int a = 0; a < ND; a++) {
      const lanes size = absolute(g[a]);
      largest = chosen((marks)(size > largest), size, largest);
    }
    going &= (marks)(largest > CONVERGED); /* false of what is not a number, which |g| tells */
    if (count == MOST || !any(going)) break;
    for (int a = 0; a < ND; a++) y[a] = chosen(going, y[a] - g[a], y[a]);
  }
  check(checked, left);
  *error = *error + singular + off;
  for (int a = 0; a < ND; a++) next[NX + a] = carry[a];
  for (int a = ND; a < PAST * ND; a++) next[NX + a] = carry[NX + a - ND];
  lanes turned = ALL(0.0); /* as `DivisibleMap` sees it */
  for (int a = 0; a < ND; a++) {
    const lanes by = absolute((next[a] - carry[a]) / *of[2] - (carry[a] - carry[NX + a]) / *of[4]);
    turned = chosen((marks)(by > turned), by, turned);
  }
  return (marks)(turned * *of[2] > DOUBT);
}
