/* Steps and rollouts on what algebra.c, core.c and roots.c give; why they are written by hand, core.c says. */

/* M^-1 (-C + Q) at (q0, v) times h^2, by Newton-Euler and the factors of the start ([L] 3.3, IG3) */
static void accelerate(step *w, const double *v, double *c) {
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
  for (long long i = 0; i < w->blocks; i++) { /* G A - ad_V^T G V */
    block *B = w->B + i;
    lanes P[6], Q[6];
    momentum(B->inertia, B->X, P);
    momentum(B->inertia, B->mu, Q);
    for (int k = 0; k < 6; k++) P[k] = -P[k];
    momentum_at_end(B->X, P, Q, B->mu);
  }
  collect(w);
  gather(w, 0, w->aux);
  for (long long i = 0; i < m->n; i++) w->q1[m->index[i]] = w->q0[m->index[i]] + w->h * v[m->index[i]];
  other_forces(w, w->q1);
  /* base - p is half a step's weight and drive; K is M/h + damping/2 */
  for (long long i = 0; i < m->n; i++) {
    const long long j = m->row[i];
    if (j >= 0)
      w->r[j] = 2 * (w->base[j] + w->minus[j]) - m->damping[j] * w->h * v[m->index[i]] - w->h * w->aux[j];
  }
  solve(w, w->r, c, 1);
}

/* One step from x under u to y. Returns evaluations of the residual, and the last correction. */
static long long advance(step *w, const options *o, const double *x, double t, double *y,
                         double *error, double *history) {
  const model *m = w->m;
  const long long nd = m->nd, nq = m->nq;
  const double *p = x + nq;
  long long evaluations = 0, start = o->solver == RIQN || o->solver == BROYDEN;
  memcpy(w->q0, x, nq * sizeof *x);
  w->t = t;
  for (long long i = 0; i < m->n; i++)
    place(m, i, x[m->index[i]], &w->L[i].c0, &w->L[i].s0, w->L[i].p0);
  memset(w->base, 0, nd * sizeof *w->base);
  const int heavy = m->gravity[0] != 0 || m->gravity[1] != 0 || m->gravity[2] != 0;
  if (heavy) {
    for (long long i = 0; i < m->n; i++) memset(w->L[i].F, 0, sizeof w->L[i].F);
    weigh(w, 0, 0.5 * w->h);
    gather(w, 0, w->base);
  }
  for (long long k = 0; k < m->nf; k++)
    if (m->drive[k] >= 0) w->base[m->drive[k]] += 0.5 * w->h * w->u[k];
  for (long long k = nd; k < nq; k++) w->q1[k] = w->u[m->nf + k - nd];

  if (start || o->guess == IG3) factorize(w, 1);
  if (o->guess == IG3) {
    double *v = w->aux + 2 * nd, *move = w->c;
    for (long long k = 0; k < nd; k++) v[k] = w->past[nd + k] / w->h;
    for (long long k = nd; k < nq; k++) v[k] = (w->u[m->nf + k - nd] - x[k]) / w->h;
    accelerate(w, v, move);
    for (long long k = 0; k < nd; k++) w->q1[k] = x[k] + w->h * v[k] + move[k];
  } else {
    const long long degree = o->guess == IG1 ? 0 : o->guess == IG2 ? 1 : w->degree;
    memcpy(w->q1, x, nd * sizeof *x);
    for (long long j = 1; j <= degree; j++)
      for (long long k = 0; k < nd; k++) w->q1[k] += w->past[j * nd + k];
  }
  for (long long k = nd; k < nq; k++) w->q1[k] = w->u[m->nf + k - nd];
  for (long long k = 0; k < nd; k++) w->base[k] += p[k];
  if (o->solver == BROYDEN && w->fresh) {
    broyden_start(w);
    w->fresh = 0;
  }

  long long factored = 1; /* the evaluation of K */
  double norm = NAN, before = INFINITY;
  for (;;) {
    residual(w, w->q1);
    evaluations++;
    norm = 0;
    for (long long k = 0; k < nd; k++) norm += w->r[k] * w->r[k];
    norm = sqrt(norm);
    if (history) history[evaluations - 1] = norm;
    memset(w->c, 0, nd * sizeof *w->c);
    *error = 0;
    if (norm <= o->residual) break;
    if (o->residual > 0 && evaluations > 1 && norm <= rounding_floor(w)) break;
    if (o->solver == BROYDEN) {
      if (evaluations > 1) broyden_update(w, w->aux + 2 * nd);
      for (long long i = 0; i < nd; i++)
        for (long long j = 0; j < nd; j++) w->c[i] += w->matrix[i * nd + j] * w->r[j];
      memcpy(w->aux + 2 * nd, w->c, nd * sizeof *w->c);
    } else if (o->solver == DENSE) {
      jacobian(w);
      lu(w->matrix, nd, w->pivot);
      lu_solve(w->matrix, nd, w->pivot, w->r, w->c);
    } else {
      const int first = evaluations == 1 && !w->kept;
      if (!start && (o->solver == NEWTON || first || evaluations == 6)) {
        factorize(w, 0);
        factored = evaluations;
      }
      solve(w, w->r, w->c, (int)start);
      if (o->solver != NEWTON) secant(w, evaluations - factored, w->c);
    }
    for (long long k = 0; k < nd; k++) {
      const double e = w->c[k] / (1 + fabs(w->q0[k]));
      *error += e * e;
    }
    *error = sqrt(*error);
    if (!(*error > o->correction) || evaluations >= o->limit) break;
    if (*error <= o->tolerance && *error > 0.5 * before) break; /* it stands on the rounding floor */
    before = *error;
    for (long long k = 0; k < nd; k++) w->q1[k] += w->c[k];
  }

  w->kept = o->solver == CHORD && o->guess != IG3 && evaluations <= 2;

  /* the momentum at the end, with what is left of the balance; see step.py */
  for (long long i = 0; i < w->blocks; i++) {
    block *B = w->B + i;
    momentum_at_end(B->X, B->P, B->mu, B->mu);
  }
  collect(w);
  if (heavy) weigh(w, 1, 0.5 * w->h);
  double *p1 = y + nq;
  gather(w, 1, p1);
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
  if (!(norm == norm)) *error = NAN;
  return evaluations;
}

static int reserve(step *w, const model *m, const options *o) {
  const long long nd = m->nd, nq = m->nq;
  const long long square = o->solver == DENSE || o->solver == BROYDEN ? nd * nd : 1;
  memset(w, 0, sizeof *w);
  w->m = m;
  w->fresh = 1;
  long long heavy = 0;
  for (long long i = 0; i < m->n; i++) heavy += m->heavy[i] != 0;
  w->blocks = (heavy + LANES - 1) / LANES;
  w->memory = calloc(w->blocks + 1, sizeof *w->B);
  w->L = calloc(m->n + 1, sizeof *w->L);
  w->slot = calloc(m->n + 1, sizeof *w->slot);
  w->phi = calloc(36 * m->n + 1, sizeof *w->phi);
  w->q0 = calloc(3 * nq + 7 * nd + square + (DEGREES + 1 + SECANTS) * nd, sizeof(double));
  w->pivot = calloc(nd + 1, sizeof *w->pivot);
  w->arg = calloc(m->n_arg + 8, sizeof *w->arg);
  w->res = calloc(m->n_res + 4, sizeof *w->res);
  w->iw = calloc(m->n_iw + 1, sizeof *w->iw);
  w->w = calloc(m->n_w + 1, sizeof *w->w);
  if (!(w->memory && w->L && w->slot && w->phi && w->q0 && w->pivot)) return 0;
  if (!(w->arg && w->res && w->iw && w->w)) return 0;
  w->q1 = w->q0 + nq, w->base = w->q1 + nq, w->r = w->base + nd, w->c = w->r + nd, w->minus = w->c + nd;
  w->plus = w->minus + nd, w->aux = w->plus + nd, w->matrix = w->aux + 2 * nd + nq;
  w->past = w->matrix + square, w->secants = w->past + (DEGREES + 1) * nd;
  w->B = (block *)(((uintptr_t)w->memory + sizeof(lanes) - 1) / sizeof(lanes) * sizeof(lanes)); /* aligned */
  for (long long i = 0; i < w->blocks; i++) /* places of the last block that stay empty */
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

typedef struct {
  step w;
  double *x; /* the state, and room for the next one and the inputs */
} course;

EXPORT void vioc_lt_release(course *c) {
  if (!c) return;
  release(&c->w);
  free(c->x);
  free(c);
}

static course *begin(const model *m, const options *o, const double *carry) {
  const long long nx = 2 * m->nq, nu = m->nf + (m->nq - m->nd);
  course *c = calloc(1, sizeof *c);
  if (c && reserve(&c->w, m, o) && (c->x = malloc((2 * nx + nu + 1) * sizeof *c->x))) {
    memcpy(c->x, carry, nx * sizeof *c->x);
    start_differences(&c->w, carry, carry + nx);
    return c;
  }
  vioc_lt_release(c);
  return 0;
}

/* `count` steps from `carry` = [x, q_k-1, ..., q_k-4]. Inputs are U (count, nu), or where gains are given
   u = U - K (x - x_d), K by columns. Stops where the last correction is above `tolerance` or not a number;
   returns the steps done, or -1 without memory. `apart`, every step has a row of `carry` to start from, and
   none ends them.

   A rollout in pieces: what `*kept` points to goes on where it stood (`carry` begins it where that is NULL),
   and is left for the next call, and for vioc_lt_release. `kept` is NULL where one call is all. */
EXPORT long long vioc_lt_rollout(const model *m, const options *o, course **kept, long long count,
                                 int apart, const double *carry, const double *U, const double *reference,
                                 const double *gains, const double *wrap, const double *t, const double *h,
                                 double tolerance, double *states, double *applied, double *errors,
                                 long long *evaluations) {
  const long long nx = 2 * m->nq, nu = m->nf + (m->nq - m->nd);
  course *c = kept && *kept ? *kept : begin(m, o, carry);
  long long k;
  if (kept) *kept = c;
  if (!c) return -1;
  step *w = &c->w;
  double *x = c->x, *y = x + nx, *u = y + nx;
  for (k = 0; k < count; k++) {
    memcpy(u, U + k * nu, nu * sizeof *u);
    if (apart) { /* nothing of the step before */
      const double *start = carry + k * (nx + PAST * m->nd);
      memcpy(x, start, nx * sizeof *x);
      start_differences(w, x, start + nx);
      w->kept = 0, w->fresh = 1;
    }
    if (gains)
      for (long long j = 0; j < nx; j++) {
        double d = x[j] - reference[k * nx + j];
        if (wrap[j] != 0) d -= wrap[j] * floor(d / wrap[j] + 0.5);
        for (long long i = 0; i < nu; i++) u[i] -= gains[(k * nx + j) * nu + i] * d;
      }
    w->u = u;
    if (w->h != h[k]) w->kept = 0, w->fresh = 1; /* K is of one step length */
    w->h = h[k];
    evaluations[k] = advance(w, o, x, t[k], y, errors + k, 0);
    int good = errors[k] <= tolerance;
    for (long long j = 0; j < nx; j++) good &= isfinite(y[j]) != 0;
    if (!good && !apart) break;
    if (!apart) next_differences(w, y);
    memcpy(x, y, nx * sizeof *x);
    memcpy(states + k * nx, x, nx * sizeof *x);
    if (applied) memcpy(applied + k * nu, u, nu * sizeof *u);
  }
  if (!kept) vioc_lt_release(c);
  return k;
}

/* One step, with the 2-norm of the residual at every evaluation (limit of them). */
EXPORT long long vioc_lt_history(const model *m, const options *o, const double *carry, const double *u,
                                 double t, double h, double *state, double *history) {
  step w;
  long long n = -1;
  double error;
  if (reserve(&w, m, o)) {
    w.u = u;
    w.h = h;
    start_differences(&w, carry, carry + 2 * m->nq);
    n = advance(&w, o, carry, t, state, &error, history);
  }
  release(&w);
  return n;
}

/* K (nd, nd) by rows for a step of length h from q0 to q1 ([L] Algorithm 4). */
EXPORT int vioc_lt_jacobian(const model *m, const double *q0, const double *q1, double h, double *K) {
  const options o = {DENSE, IG1, 1, 0, 0, 0};
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
