/* A step of `chord.solved_step` for LANES samples side by side; each iterates until its own correction is small.
   Before this stand the sizes and the functions of chord.py:
   predict (x, u, t, dt, parameters) -> q, far, pivots;
   factorize (x, q, u, t, dt, parameters, q_k, pivots) -> y, factors, suspect;
   iterate (z, x, q, u, t, dt, parameters, factors) -> g, x_next, multipliers, error; check (x, q, parameters).
   z is y and a number that remembers how corrections contract. What lanes gain is said in many.c. */

static void step(const lanes *x, const lanes *const *of, lanes *next, lanes *multipliers, lanes *error,
                 lanes *work) {
  lanes *start = work, *z = start + ND, *g = z + ND + 1, *pivots = g + ND + 1, *w = pivots + ND;
  lanes suspect, away, off;
  const lanes *from[] = {x, of[0], of[1], of[2], of[3]}, *context[] = {x, start, of[0], of[1], of[2], of[3], x, pivots};
  const lanes *args[] = {z, x, start, of[0], of[1], of[2], of[3], w}, *checked[] = {x, next, of[3]};
  lanes *guessed[] = {start, &away, pivots}, *factored[] = {z, w, &suspect}, *found[] = {g, next, multipliers, error};
  lanes *left[] = {&off};
  marks going = ~(marks){0};
  predict(from, guessed);
  factorize(context, factored);
  z[ND] = ALL(0.0);
  for (int count = 1;; count++) {
    iterate(args, found); /* where it has ended, the same again */
    lanes largest = ALL(0.0);
    for (int a = 0; a < ND; a++) {
      const lanes size = absolute(g[a]);
      largest = chosen((marks)(size > largest), size, largest);
    }
    going &= (marks)(largest > CONVERGED); /* false of what is not a number, which the error tells */
    if (count == MOST || !any(going)) break;
    for (int a = 0; a <= ND; a++) z[a] = chosen(going, z[a] - g[a], z[a]);
  }
  check(checked, left);
  *error = *error + suspect + away + off;
}
