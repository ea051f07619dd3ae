/* A step of `GalerkinVI` without constraints: all stages at once, one in each lane.

   (x, u, t, dt, parameters) -> (x_next, no multipliers, error). Before this stand the sizes, the coefficients of the
   rule (columns over stages, a lane without one zero) and the functions motion (x, u, t, dt, parameters) -> v, a at
   the start; stage (q, v, forces, t, parameters) -> L_v, f; factors (q, parameters) -> those of M;
   solve (factors, b) -> M^-1 b.

   With M at the guess of each stage V <- V - M^-1 r contracts by h |v| a time (GA 6); by Anderson's acceleration
   some times less: of the corrections so far it takes the combination whose change is nearest to the last one. The
   root is certified by the ratio of the second correction to the first, which are not accelerated.

   Written by hand: a step as CasADi generates it takes 1.9 times as long at 1 link, 2.8 times at 10. */

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

static int step(const double **arg, double **res, double *w) {
  const double *x = arg[0], *u = arg[1], h = *arg[3];
  const double *p = x + NQ, *rho = u + NF;
  lanes *at = (lanes *)(((unsigned long long)w + sizeof(lanes) - 1) / sizeof(lanes) * sizeof(lanes));
  lanes *start = at, *inputs = start + NX, *length = inputs + NU, *v0 = length + 2, *a0 = v0 + ND;
  lanes *V = a0 + ND, *Q = V + NQ, *forces = Q + NQ, *theta = forces + NF, *t = theta + NP, *W = t + 1;
  lanes *m = W + NW, *F = m + ND, *r = F + ND, *z = r + ND, *g = z + ND, *moved = g + ND;
  lanes *bases = moved + ND, *moves = bases + MOST * ND, sums[MOST];
  double along[MOST], last[MOST], weights[ND], error = INFINITY, before, worst = 0;
  int count = 0, near = 0; /* near: corrections are next to rounding, whose differences say nothing */
  for (int i = 0; i < NF; i++) forces[i] = ALL(u[i]);
  for (int i = 0; i < NP; i++) theta[i] = ALL(arg[4][i]);
  *t = *arg[2] + h * C;
  for (int i = ND; i < NQ; i++) {
    Q[i] = x[i] + C * (rho[i - ND] - x[i]);
    V[i] = ALL((rho[i - ND] - x[i]) / h);
  }
  for (int a = 0; a < ND; a++) {
    weights[a] = h / (SIZES[a] + fabs(x[a]));
  }
  for (int i = 0; i < NX; i++) start[i] = ALL(x[i]);
  for (int i = 0; i < NU; i++) inputs[i] = ALL(u[i]);
  length[0] = ALL(*arg[2]), length[1] = ALL(h);
  const lanes *xutt[] = {start, inputs, length, length + 1, theta};
  lanes *moves0[] = {v0, a0};
  motion(xutt, moves0);
  for (int a = 0; a < ND; a++) {
    V[a] = v0[a] + h * C * a0[a];
    if (TURNING[a] && !(fabs(h * SPACING) * (fabs(v0[a][0]) + fabs(h / 2 * a0[a][0])) <= FAR)) worst = INFINITY; /* as `predictor.far` */
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
    out[0] = z;
    solve(wr, out);
    out[0] = m;
    near |= error <= STALLED;
    const int known = near ? 0 : count - FIRST;
    if (known > 0) { /* bases: differences of corrections, orthonormal; moves: of V and corrections that made them */
      const int n = known - 1;
      lanes *basis = bases + n * ND, *move = moves + n * ND, square = ALL(0.0), on = ALL(0.0);
      for (int i = 0; i < n; i++) {
        sums[i] = bases[i * ND] * z[0];
        for (int a = 1; a < ND; a++) sums[i] += bases[i * ND + a] * z[a];
      }
      for (int i = 0; i < n; i++) along[i] = total(sums[i]), last[i] = along[i] - last[i];
      for (int a = 0; a < ND; a++) {
        lanes change = z[a] - g[a], by = change + moved[a];
        for (int i = 0; i < n; i++) change -= last[i] * bases[i * ND + a], by -= last[i] * moves[i * ND + a];
        square += change * change;
        on += change * z[a];
        basis[a] = change, move[a] = by;
      }
      const double size = total(square), scale = size > 0 ? 1 / sqrt(size) : 0;
      along[n] = total(on) * scale;
      for (int a = 0; a < ND; a++) basis[a] *= scale, move[a] *= scale;
    }
    for (int a = 0; a < ND; a++) {
      g[a] = z[a];
      for (int i = 0; i < known; i++) z[a] -= along[i] * moves[i * ND + a];
      moved[a] = z[a];
    }
    for (int i = 0; i < known; i++) last[i] = along[i];
    lanes sum = ALL(0.0);
    for (int a = 0; a < ND; a++) {
      const lanes by = weights[a] * z[a];
      sum += by * by;
      V[a] += z[a];
    }
    before = error;
    error = sqrt(total(sum));
    count++;
    if (count == FIRST && error > STALLED) worst = fmax(worst, error / before);
  } while (count < MOST && error > CONVERGED && (error < 0.9 * before || error > STALLED) && worst <= CONTRACTION);
  double *y = res[0];
  for (int a = 0; a < ND; a++) {
    y[a] = x[a] + h * total(V[a] * B);
    y[NQ + a] = p[a] + h * total(F[a] * B);
  }
  for (int i = ND; i < NQ; i++) y[i] = rho[i - ND], y[NQ + i] = (rho[i - ND] - x[i]) / h;
  *res[2] = worst <= CONTRACTION ? error : INFINITY;
  return 0;
}

#if FEEDBACK
/* (x, u_d, x_d, K by columns, t, dt, parameters) -> what a step does under u = u_d - K (x - x_d), and u */
int f(const double **arg, double **res, long long *iw, double *w, int mem) {
  const double *x = arg[0], *goal = arg[2], *K = arg[3], turn = 6.283185307179586476925286766559;
  double *u = res[3];
  for (int j = 0; j < NU; j++) u[j] = arg[1][j];
  for (int i = 0; i < NX; i++) {
    double e = x[i] - goal[i];
    if (WRAP[i]) e -= turn * floor(e / turn + 0.5);
    for (int j = 0; j < NU; j++) u[j] -= K[i * NU + j] * e;
  }
  const double *inner[] = {x, u, arg[4], arg[5], arg[6]};
  return step(inner, res, w);
}
#else
int f(const double **arg, double **res, long long *iw, double *w, int mem) { return step(arg, res, w); }
#endif
