/* A step of `GalerkinVI` without constraints: all stages at once, one in each lane.

   (carry, u, t, dt, parameters) -> (carry, no multipliers, error); carry = (x, V_1, ..., V_s). Before this stand
   the sizes, the coefficients of the rule (columns over stages, a lane without one zero) and the functions
   stage (q, v, forces, t, parameters) -> L_v, f; factors (q, parameters) -> those of M; solve (factors, b) -> M^-1 b.

   With M at the guess of each stage V <- V - M^-1 r contracts by h |v| a time (GA 6); by Broyden's updates of its
   derivative, as in Kelley's brsol, some times less. */

static inline void mixed(const lanes *of, const lanes *table, lanes *to) {
  for (int a = 0; a < ND; a++) {
    lanes sum = of[a][0] * table[0];
    for (int j = 1; j < S; j++) sum += of[a][j] * table[j];
    to[a] = sum;
  }
}

static inline double total(lanes x) {
  double sum = x[0];
  for (int i = 1; i < S; i++) sum += x[i];
  return sum;
}

static double product(const lanes *a, const lanes *b) {
  lanes sum = a[0] * b[0];
  for (int i = 1; i < ND; i++) sum += a[i] * b[i];
  return total(sum);
}

int f(const double **arg, double **res, long long *iw, double *w, int mem) {
  const double *x = arg[0], *u = arg[1], h = *arg[3];
  const double *p = x + NQ, *V0 = x + NX, *rho = u + NF;
  lanes *at = (lanes *)(((unsigned long long)w + sizeof(lanes) - 1) / sizeof(lanes) * sizeof(lanes));
  lanes *V = at, *Q = V + NQ, *forces = Q + NQ, *theta = forces + NF, *t = theta + NP, *W = t + 1;
  lanes *m = W + NW, *F = m + ND, *r = F + ND, *steps = r + ND;
  double squares[KEPT], error = INFINITY, before;
  int count = 0;
  for (int i = 0; i < NF; i++) forces[i] = ALL(u[i]);
  for (int i = 0; i < NP; i++) theta[i] = ALL(arg[4][i]);
  *t = *arg[2] + h * C;
  for (int i = ND; i < NQ; i++) {
    Q[i] = x[i] + C * (rho[i - ND] - x[i]);
    V[i] = ALL((rho[i - ND] - x[i]) / h);
  }
  for (int a = 0; a < ND; a++) {
    V[a] = ALL(0.0);
    for (int j = 0; j < S; j++) V[a] += V0[j * ND + a] * AHEAD[j];
  }
  const lanes *qvut[] = {Q, V, forces, t, theta}, *qt[] = {Q, theta}, *wr[] = {W, r};
  lanes *out[] = {m, F}, *into[] = {W};
  do {
    mixed(V, A, Q);
    for (int a = 0; a < ND; a++) Q[a] = x[a] + h * Q[a];
    if (!count) factors(qt, into);
    stage(qvut, out);
    mixed(F, AB, r);
    for (int a = 0; a < ND; a++) r[a] = (p[a] - m[a] + h * r[a]) * PRESENT;
    const int n = count % KEPT; /* corrections that are known; then it begins anew */
    lanes *z = steps + n * ND;
    out[0] = z;
    solve(wr, out);
    out[0] = m;
    for (int i = 0; i + 1 < n; i++) {
      const double along = product(steps + i * ND, z) / squares[i];
      for (int a = 0; a < ND; a++) z[a] += along * steps[(i + 1) * ND + a];
    }
    if (n) {
      const double scale = 1 / (1 - product(z - ND, z) / squares[n - 1]);
      for (int a = 0; a < ND; a++) z[a] *= scale;
    }
    squares[n] = product(z, z);
    lanes sum = ALL(0.0);
    for (int a = 0; a < ND; a++) {
      const lanes by = h * z[a] / (1 + fabs(x[a]));
      sum += by * by;
      V[a] += z[a];
    }
    before = error;
    error = sqrt(total(sum));
    count++;
  } while (count < MOST && error > CONVERGED && (error < 0.9 * before || error > STALLED));
  double *y = res[0];
  for (int a = 0; a < ND; a++) {
    y[a] = x[a] + h * total(V[a] * B);
    y[NQ + a] = p[a] + h * total(F[a] * B);
    for (int j = 0; j < S; j++) y[NX + j * ND + a] = V[a][j];
  }
  for (int i = ND; i < NQ; i++) y[i] = rho[i - ND], y[NQ + i] = (rho[i - ND] - x[i]) / h;
  *res[2] = error;
  return 0;
}
