/* Steps and rollouts from the functions of the other files. core.c explains why this code is not generated. */

/* twists of the links at rates v, and accelerations due to v alone; those of the bodies also to X and mu */
static void travel(step *w, const double *v) {
  const model *m = w->m;
  for (long long i = 0; i < m->n; i++) {
    link *l = w->L + i;
    const double rate = v[m->index[i]];
    double s[6] = {0, 0, m->slide[i] * rate, 0, 0, m->turn[i] * rate}, x[6], A[6] = {0};
    if (m->parent[i] < 0) {
      memset(l->V, 0, sizeof l->V);
      memset(l->A, 0, sizeof l->A);
    } else {
      down(m, i, l->c0, l->s0, l->p0, w->L[m->parent[i]].V, l->V);
      down(m, i, l->c0, l->s0, l->p0, w->L[m->parent[i]].A, l->A);
    }
    for (int k = 0; k < 6; k++) l->V[k] += s[k];
    cross(l->V + 3, s, x); /* ad_V S dq */
    cross(l->V, s + 3, A);
    cross(l->V + 3, s + 3, x + 3);
    for (int k = 0; k < 3; k++) l->A[k] += x[k] + A[k], l->A[3 + k] += x[3 + k];
    const long long slot = w->slot[i], lane = slot % LANES;
    for (int k = 0; k < 6 && slot >= 0; k++)
      w->B[slot / LANES].X[k][lane] = l->V[k], w->B[slot / LANES].mu[k][lane] = l->A[k];
  }
}

/* adds half a step's impulses of weights and inputs at the start to base; with v also to r, minus the
   velocity-dependent inertial terms */
static void load(step *w, const double *v) {
  const model *m = w->m;
  const long long nd = m->nd;
  for (long long i = 0; i < m->n; i++) memset(w->L[i].F, 0, sizeof w->L[i].F);
  if (v) {
    travel(w, v);
    for (long long i = 0; i < w->blocks; i++) { /* G A - ad_V^T G V */
      block *B = w->B + i;
      lanes P[6], Q[6];
      momentum(B->inertia, B->X, P);
      momentum(B->inertia, B->mu, Q);
      for (int k = 0; k < 6; k++) P[k] = -P[k];
      momentum_at_end(B->X, P, Q, B->mu);
    }
    collect(w, 1);
  }
  if (w->heavy) weigh(w, 0, 0.5 * w->h);
  memset(w->base, 0, nd * sizeof *w->base);
  if (v)
    gather_both(w, 0, w->base, w->r);
  else if (w->heavy)
    gather(w, w->base);
  for (long long k = 0; k < m->nf; k++)
    if (m->drive[k] >= 0) w->base[m->drive[k]] += 0.5 * w->h * w->u[k];
  if (!v) return;
  other_forces(w, w->q1);
  for (long long k = 0; k < nd; k++) w->r[k] = w->base[k] + w->minus[k] - 0.5 * w->h * w->r[k];
}

/* initial guess of q1: q, q + h v, or q + h v + h^2 a / 2, by the factors of the start. Damping enters as in a
   step, by K dq = p + h/2 (Q - C); prescribed variables move at their mean rate. */
static void guess(step *w, const options *o, const double *p) {
  const model *m = w->m;
  const long long nd = m->nd, nq = m->nq;
  double *v = w->rates;
  memcpy(w->q1, w->q0, nd * sizeof *v);
  for (long long k = nd; k < nq; k++) w->q1[k] = w->u[m->nf + k - nd];
  memcpy(w->r, p, nd * sizeof *p);
  if (nq > nd) {
    memset(v, 0, nd * sizeof *v);
    for (long long k = nd; k < nq; k++) v[k] = (w->q1[k] - w->q0[k]) / w->h;
    travel(w, v);
    for (long long i = 0; i < w->blocks; i++) {
      block *B = w->B + i;
      momentum(B->inertia, B->X, B->mu);
    }
    collect(w, 0);
    gather(w, w->c);
    for (long long k = 0; k < nd; k++) w->r[k] -= w->c[k];
  }
  solve(w, w->r, w->c, 1);
  for (long long k = 0; k < nd; k++) v[k] = w->c[k] / w->h;
  if (o->guess != IG1)
    for (long long k = 0; k < nd; k++) w->q1[k] += w->c[k];
  load(w, o->guess == PREDICTED ? v : 0);
  if (o->guess == PREDICTED) {
    solve(w, w->r, w->c, 1);
    for (long long k = 0; k < nd; k++) w->q1[k] += w->c[k];
  }
  for (long long i = 0; i < m->n; i++) { /* as `predictor.far` */
    const long long j = m->row[i];
    if (j >= 0 && m->turn[i] != 0)
      w->suspect |= !(fabs(w->h * v[j]) + (o->guess == PREDICTED ? fabs(w->c[j]) : 0) <= FAR);
  }
  for (long long k = 0; k < nd; k++) w->base[k] += p[k];
}

/* One step from x under u to y, which depends on its arguments only. Returns the number of evaluations of the
   residual. The error is the last correction, or infinity if the corrections do not contract as for a root on
   the branch of the step. */
static long long advance(step *w, const options *o, const double *x, double t, double *y,
                         double *error, double *history) {
  const model *m = w->m;
  const long long nd = m->nd, nq = m->nq;
  const int start = o->solver == RIQN;
  double *p1 = y + nq;
  long long evaluations = 0;
  memcpy(w->q0, x, nq * sizeof *x);
  w->t = t;
  for (long long i = 0; i < m->n; i++)
    place(m, i, x[m->index[i]], &w->L[i].c0, &w->L[i].s0, w->L[i].p0);
  for (long long k = 0; k < nd; k++) w->unit[k] = 1 / (m->size[k] + fabs(x[k]));

  w->suspect = 0;
  factorize_start(w);
  if (!start) w->suspect = 0; /* the step uses other factors */
  guess(w, o, x + nq);

  double norm = NAN, before = INFINITY, last = INFINITY;
  int enough = 0; /* whether no further correction is needed */
  for (;;) {
    forward(w, w->q1);
    evaluations++;
    collect(w, 0);
    if (enough) break;
    gather(w, w->r);
    balance(w, w->q1);
    norm = 0;
    for (long long k = 0; k < nd; k++) norm += w->r[k] * w->r[k];
    norm = sqrt(norm);
    if (history) history[evaluations - 1] = norm;
    *error = 0;
    if (norm <= o->residual) break;
    if (o->residual > 0 && evaluations > 1 && norm <= rounding_floor(w)) break;
    if (o->solver == DENSE) {
      jacobian(w);
      w->suspect |= lu(w->matrix, nd, w->pivot) != (w->h < 0 && nd % 2 ? -1 : 1);
      lu_solve(w->matrix, nd, w->pivot, w->r, w->c);
    } else {
      if (o->solver == NEWTON || (!start && evaluations == 1)) factorize(w);
      solve(w, w->r, w->c, start);
    }
    double size = size_of(w, w->c, error);
    if (evaluations > 1) w->suspect |= *error > o->tolerance && !(size <= o->contraction * last);
    if (o->solver <= RIQN) {
      secant(w, evaluations - 1, w->c);
      if (evaluations > 1) size = size_of(w, w->c, error);
    }
    if (!(*error > o->correction) || evaluations >= o->limit || (w->suspect && !history)) break;
    if (*error <= o->tolerance && *error > 0.5 * before) break; /* the rounding floor is reached */
    for (long long k = 0; k < nd; k++) w->q1[k] += w->c[k];
    const double left = *error * (*error / before); /* predicted next correction, at a constant ratio */
    enough = evaluations > 1 && left <= o->correction;
    before = *error, last = size;
    if (enough) *error = left;
  }

  /* the momentum at the end, with the residual of the balance; see linear_time_step.py */
  for (long long i = 0; i < w->blocks; i++) {
    block *B = w->B + i;
    momentum_at_end(B->X, B->P, B->mu, B->mu);
  }
  collect(w, 1);
  if (w->heavy) weigh(w, 1, 0.5 * w->h);
  gather_both(w, 1, enough ? w->r : w->c, p1);
  if (enough) balance(w, w->q1);
  for (long long i = 0; i < m->n; i++) {
    const long long j = m->row[i], k = m->index[i];
    if (j >= 0) p1[j] += w->r[j] + w->plus[j] - 0.5 * m->damping[j] * (w->q1[k] - w->q0[k]);
  }
  for (long long k = 0; k < m->nf; k++)
    if (m->drive[k] >= 0) p1[m->drive[k]] += 0.5 * w->h * w->u[k];
  for (long long k = 0; k < nd; k++) y[k] = w->q1[k];
  for (long long k = nd; k < nq; k++) {
    y[k] = w->q1[k];
    y[nq + k] = (w->q1[k] - w->q0[k]) / w->h;
  }
  if (w->suspect) *error = INFINITY;
  if (!(norm == norm)) *error = NAN;
  return evaluations;
}

static int reserve(step *w, const model *m, const options *o) {
  const long long nd = m->nd, nq = m->nq;
  const long long square = o->solver == DENSE ? nd * nd : 1;
  memset(w, 0, sizeof *w);
  w->m = m;
  w->heavy = m->gravity[0] != 0 || m->gravity[1] != 0 || m->gravity[2] != 0;
  long long heavy = 0;
  for (long long i = 0; i < m->n; i++) heavy += m->heavy[i] != 0;
  w->blocks = (heavy + LANES - 1) / LANES;
  w->memory = calloc(w->blocks + 1, sizeof *w->B);
  w->L = calloc(m->n + 1, sizeof *w->L);
  w->slot = calloc(m->n + 1, sizeof *w->slot);
  w->phi = calloc(36 * m->n + 1, sizeof *w->phi);
  w->q0 = calloc(3 * nq + (6 + SECANTS) * nd + square, sizeof(double));
  w->pivot = calloc(nd + 1, sizeof *w->pivot);
  w->arg = calloc(m->n_arg + 8, sizeof *w->arg);
  w->res = calloc(m->n_res + 4, sizeof *w->res);
  w->iw = calloc(m->n_iw + 1, sizeof *w->iw);
  w->w = calloc(m->n_w + 1, sizeof *w->w);
  if (!(w->memory && w->L && w->slot && w->phi && w->q0 && w->pivot)) return 0;
  if (!(w->arg && w->res && w->iw && w->w)) return 0;
  w->q1 = w->q0 + nq, w->rates = w->q1 + nq, w->base = w->rates + nq, w->r = w->base + nd, w->c = w->r + nd;
  w->minus = w->c + nd, w->plus = w->minus + nd, w->unit = w->plus + nd, w->secants = w->unit + nd;
  w->matrix = w->secants + SECANTS * nd;
  w->B = (block *)(((uintptr_t)w->memory + sizeof(lanes) - 1) / sizeof(lanes) * sizeof(lanes)); /* aligned */
  for (long long i = 0; i < w->blocks; i++) /* unused lanes of the last block */
    for (int k = 0; k < 9; k += 4) w->B[i].R[k] += 1;
  heavy = 0;
  for (long long i = 0; i < m->n; i++) {
    w->slot[i] = m->heavy[i] ? heavy++ : -1;
    for (int k = 0; k < 10 && m->heavy[i]; k++)
      w->B[w->slot[i] / LANES].inertia[k][w->slot[i] % LANES] = m->inertia[10 * i + k];
  }
  return 1;
}

static void release(step *w) {
  free(w->memory);
  free(w->slot);
  free(w->L);
  free(w->phi);
  free(w->q0);
  free(w->pivot);
  free(w->arg);
  free(w->res);
  free(w->iw);
  free(w->w);
}

/* `count` steps from x. Inputs are U (count, nu), or with gains u = U - K (x - x_d), K by columns. Stops if the
   last correction is above `tolerance` or NaN. Returns the number of steps, or -1 without memory. If `apart`,
   each step starts from its own row of x, and failures do not stop the others. */
EXPORT long long vioc_lt_rollout(const model *m, const options *o, long long count, int apart,
                                 const double *x, const double *U, const double *reference,
                                 const double *gains, const double *wrap, const double *t, const double *h,
                                 double tolerance, double *states, double *applied, double *errors,
                                 long long *evaluations) {
  const long long nx = 2 * m->nq, nu = m->nf + (m->nq - m->nd);
  step w;
  double *u = malloc((nu + 1) * sizeof *u);
  long long k = -1;
  if (reserve(&w, m, o) && u)
    for (k = 0; k < count; k++) {
      double *y = states + k * nx;
      memcpy(u, U + k * nu, nu * sizeof *u);
      if (gains)
        for (long long j = 0; j < nx; j++) {
          double d = x[j] - reference[k * nx + j];
          if (wrap[j] != 0) d -= wrap[j] * floor(d / wrap[j] + 0.5);
          for (long long i = 0; i < nu; i++) u[i] -= gains[(k * nx + j) * nu + i] * d;
        }
      w.u = u, w.h = h[k];
      evaluations[k] = advance(&w, o, x, t[k], y, errors + k, 0);
      int good = errors[k] <= tolerance;
      for (long long j = 0; j < nx; j++) good &= isfinite(y[j]) != 0;
      if (!good && !apart) break;
      if (applied) memcpy(applied + k * nu, u, nu * sizeof *u);
      x = apart ? x + nx : y;
    }
  release(&w);
  free(u);
  return k;
}

/* One step, with the 2-norm of the residual at every evaluation, at most `limit`. */
EXPORT long long vioc_lt_history(const model *m, const options *o, const double *x, const double *u, double t,
                                 double h, double *state, double *history) {
  step w;
  long long n = -1;
  double error;
  if (reserve(&w, m, o)) {
    w.u = u, w.h = h;
    n = advance(&w, o, x, t, state, &error, history);
  }
  release(&w);
  return n;
}

/* K (nd, nd) by rows for a step of length h from q0 to q1 ([L] Algorithm 4). */
EXPORT int vioc_lt_jacobian(const model *m, const double *q0, const double *q1, double h, double *K) {
  const options o = {DENSE, IG1, 1, 0, 0, 0, 0};
  step w;
  const int good = reserve(&w, m, &o);
  if (good) {
    memcpy(w.q0, q0, m->nq * sizeof *q0);
    w.h = h;
    for (long long i = 0; i < m->n; i++)
      place(m, i, q0[m->index[i]], &w.L[i].c0, &w.L[i].s0, w.L[i].p0);
    forward(&w, q1);
    jacobian(&w);
    memcpy(K, w.matrix, m->nd * m->nd * sizeof *K);
  }
  release(&w);
  return good;
}
