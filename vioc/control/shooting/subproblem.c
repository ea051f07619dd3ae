/* Arithmetic of `subproblem.py` in loops, for problems so small that calls of NumPy would take most of the time.
   Formulas and names are those of `subproblem.py`; matrices are row by row. stages/chain.c precedes this text
   and has the gain. */

enum { NONE, EQUATION, INEQUALITY };

typedef struct {
  Long N, n, q, e, m, rows, free, limits; /* e: elastic states; free: directions of the start; inequalities */
  const double *lower, *upper;            /* (rows,), infinite if there is none */
  const signed char *kind, *hard;
  const double *start;              /* (n, free) */
  const double *estimate, *costates; /* (rows,), (N+1, n) */
  double mu, soft, scale, share;
} subproblem;

typedef struct {
  const double *F, *g, *g_end, *J, *J_end, *H, *H_end;
  Long of_J; /* distance between the J of stages: 0 if all are equal */
} blocks;

typedef struct {
  const double *gaps, *h, *p, *y, *s, *low, *high;
  double cost, elastic;
} iterate;

static double largest(double most, double value) {
  value = fabs(value);
  return value <= most || most != most ? most : value; /* NaN stays */
}

static double residual(const subproblem *v, const double *h, const double *s, Long i) {
  return v->kind[i] ? h[i] - s[i] : 0;
}

static double softness(const subproblem *v, Long i) { return v->hard[i] ? 0 : v->soft; }

static double sigma(const subproblem *v, const iterate *it, Long i) {
  return it->low[i] / (it->s[i] - v->lower[i]) + it->high[i] / (v->upper[i] - it->s[i]);
}

static double push(const subproblem *v, const iterate *it, Long i) {
  return v->mu / (v->upper[i] - it->s[i]) - v->mu / (it->s[i] - v->lower[i]);
}

static double weight(const subproblem *v, const iterate *it, Long i) {
  double s;
  if (v->kind[i] == EQUATION) return 1 / v->soft;
  if (v->kind[i] == NONE) return 0;
  s = sigma(v, it, i);
  return s / (1 + softness(v, i) * s);
}

/* out (q) += J'y of one stage, or of the end; J (m, q). */
static void pull(Long m, Long q, const double *J, const double *y, double *restrict out) {
  Long i, j;
  for (i = 0; i < m; ++i)
    if (y[i] != 0)
      for (j = 0; j < q; ++j) out[j] += J[i * q + j] * y[i];
}

/* Largest entry of the Lagrangian's gradient. */
static double stationarity(const subproblem *v, const blocks *b, const iterate *it) {
  const Long N = v->N, n = v->n, q = v->q, m = v->m, end = N * m;
  double r[WIDEST], most = 0;
  Long i, j, k;
  for (k = 0; k < N; ++k) {
    const double *F = b->F + k * n * q, *p = it->p + (k + 1) * n, *g = b->g + k * q;
    for (j = 0; j < q; ++j) r[j] = v->scale * g[j];
    for (i = 0; i < n; ++i)
      for (j = 0; j < q; ++j) r[j] += F[i * q + j] * p[i];
    pull(m, q, b->J + k * b->of_J, it->y + k * m, r);
    if (k)
      for (j = 0; j < n; ++j) most = largest(most, r[j] - it->p[k * n + j]);
    else
      for (i = 0; i < v->free; ++i) {
        double s = 0;
        for (j = 0; j < n; ++j) s += v->start[j * v->free + i] * r[j];
        most = largest(most, s);
      }
    for (j = n; j < q; ++j) most = largest(most, r[j]);
  }
  for (j = 0; j < n; ++j) r[j] = v->scale * b->g_end[j] - it->p[N * n + j];
  pull(v->rows - end, n, b->J_end, it->y + end, r);
  for (j = 0; j < n; ++j) most = largest(most, r[j]);
  return most;
}

static double error(const subproblem *v, const iterate *it, double most, double mu, double ones) {
  const Long N = v->N, n = v->n;
  double limits = 0, duals = 0, of_duals, of_limits, left = 0, slack = 0;
  Long i, k;
  const double of_cost = mu != 0 ? 1 : v->share;
  for (i = 0; i < v->rows; ++i) {
    limits += it->low[i] + it->high[i];
    duals += fabs(it->y[i]);
  }
  for (i = n; i < (N + 1) * n; ++i) duals += fabs(it->p[i]);
  of_duals = fmax(1, (duals + limits) / fmax(N * n + v->rows + 2 * v->limits, 1) / ones);
  of_limits = fmax(1, limits / fmax(2 * v->limits, 1) / ones);
  for (k = 0; k < N; ++k)
    for (i = 0; i < n; ++i) {
      double gap = it->gaps[k * n + i];
      if (mu != 0 && i < v->e) gap -= it->elastic * (it->p[(k + 1) * n + i] - v->costates[(k + 1) * n + i]);
      left = largest(left, gap);
    }
  for (i = 0; i < v->rows; ++i) {
    double rest = residual(v, it->h, it->s, i);
    if (mu != 0) rest -= softness(v, i) * (it->y[i] - v->estimate[i]);
    left = largest(left, rest);
    if (v->kind[i] != INEQUALITY) continue;
    most = largest(most, it->y[i] - it->high[i] + it->low[i]);
    if (isfinite(v->lower[i])) slack = largest(slack, it->low[i] * (it->s[i] - v->lower[i]) - mu);
    if (isfinite(v->upper[i])) slack = largest(slack, it->high[i] * (v->upper[i] - it->s[i]) - mu);
  }
  return largest(largest(most / of_duals, left), slack / of_limits / of_cost);
}

/* KKT residuals of the problem, and of the barrier subproblem with `mu`. */
PUBLIC void vioc_subproblem_errors(const subproblem *v, const blocks *b, const iterate *it, double mu, double ones,
                                   double *found) {
  const double most = stationarity(v, b, it);
  found[0] = error(v, it, most, 0, ones);
  found[1] = error(v, it, most, mu, ones);
}

/* M (N, q, q), with only the lower half written, and last (n, n). */
PUBLIC void vioc_subproblem_hessian(const subproblem *v, const blocks *b, const iterate *it, double of_states,
                                    double of_inputs, const double *of_start, double *M, double *last) {
  const Long N = v->N, n = v->n, q = v->q, m = v->m, end = N * m;
  Long i, j, k, l;
  for (k = 0; k < N; ++k) {
    const double *H = b->H + k * q * q, *J = b->J + k * b->of_J;
    double *restrict out = M + k * q * q;
    for (i = 0; i < q; ++i) {
      for (j = 0; j <= i; ++j) out[i * q + j] = v->scale * H[i * q + j];
      out[i * q + i] += v->scale * ((i < n ? of_states : of_inputs) + (k == 0 && i < n ? of_start[i] : 0));
    }
    for (l = 0; l < m; ++l) {
      const double w = weight(v, it, k * m + l), *row = J + l * q;
      if (w == 0) continue;
      for (i = 0; i < q; ++i) {
        const double a = w * row[i];
        if (a == 0) continue;
        for (j = 0; j <= i; ++j) out[i * q + j] += a * row[j];
      }
    }
  }
  for (i = 0; i < n * n; ++i) last[i] = v->scale * b->H_end[i];
  for (i = 0; i < n; ++i) last[i * n + i] += v->scale * of_states;
  for (l = end; l < v->rows; ++l) {
    const double w = weight(v, it, l), *row = b->J_end + (l - end) * n;
    for (i = 0; i < n; ++i)
      for (j = 0; j < n; ++j) last[i * n + j] += w * row[i] * row[j];
  }
}

/* `more`, (N, q) followed by (n,), is added to the cost's gradient unless it is NULL. */
PUBLIC void vioc_subproblem_linear(const subproblem *v, const blocks *b, const iterate *it, const double *gaps,
                                   const double *r, const double *more, double *out_v, double *g, double *end,
                                   double *c) {
  const Long N = v->N, n = v->n, q = v->q, m = v->m, rows = v->rows;
  Long i, j, k;
  for (i = 0; i < rows; ++i) {
    const double soft = softness(v, i), s = sigma(v, it, i);
    out_v[i] = v->kind[i] == EQUATION ? v->estimate[i] + r[i] / v->soft
               : v->kind[i] == NONE   ? 0
                                      : (push(v, it, i) + s * (r[i] + soft * v->estimate[i])) / (1 + soft * s);
  }
  for (i = 0; i < N * q; ++i) g[i] = v->scale * (b->g[i] + (more ? more[i] : 0));
  for (j = 0; j < n; ++j) end[j] = v->scale * (b->g_end[j] + (more ? more[N * q + j] : 0));
  for (k = 0; k < N; ++k) pull(m, q, b->J + k * b->of_J, out_v + k * m, g + k * q);
  pull(rows - N * m, n, b->J_end, out_v + N * m, end);
  for (k = 0; k < N; ++k)
    for (i = 0; i < n; ++i)
      c[k * n + i] = gaps[k * n + i] + (i < v->e ? it->elastic * v->costates[(k + 1) * n + i] : 0);
}

static double most(double tau, double value, double step, double length) {
  return step < 0 && tau * value < -length * step ? -tau * value / step : length;
}

/* out: (4, rows) y, ds, and steps of low and high; found: slope, and the two lengths. */
PUBLIC void vioc_subproblem_direction(const subproblem *v, const blocks *b, const iterate *it, double tau,
                                      const double *r, const double *given, const double *dx, const double *du,
                                      double *out, double *found) {
  const Long N = v->N, n = v->n, q = v->q, m = v->m, rows = v->rows;
  double *y = out, *ds = out + rows, *low = out + 2 * rows, *high = out + 3 * rows;
  double cost = 0, of_rows = 0, of_gaps = 0, of_limits = 0, of_slacks = 1, of_duals = 1;
  Long i, j, k;
  for (k = 0; k <= N; ++k) {
    const double *x = dx + k * n, *u = du + k * (q - n), *J = k < N ? b->J + k * b->of_J : b->J_end;
    const Long wide = k < N ? q : n, first = k * m, last = k < N ? first + m : rows;
    const double *g = k < N ? b->g + k * q : b->g_end;
    for (j = 0; j < wide; ++j) cost += g[j] * (j < n ? x[j] : u[j - n]);
    for (i = first; i < last; ++i) {
      const double *row = J + (i - first) * wide;
      double dh = 0, s, give;
      int up;
      for (j = 0; j < n; ++j) dh += row[j] * x[j];
      for (j = n; j < wide; ++j) dh += row[j] * u[j - n];
      y[i] = given[i] + weight(v, it, i) * dh;
      ds[i] = low[i] = high[i] = 0;
      if (v->kind[i] == NONE) continue;
      if (v->kind[i] == INEQUALITY) {
        const double to_low = it->s[i] - v->lower[i], to_high = v->upper[i] - it->s[i];
        const int has_low = isfinite(v->lower[i]), has_high = isfinite(v->upper[i]);
        s = sigma(v, it, i);
        give = softness(v, i);
        ds[i] = give * s > 1 ? (y[i] - push(v, it, i)) / s : r[i] + dh - give * (y[i] - v->estimate[i]);
        if (has_low) low[i] = v->mu / to_low - it->low[i] - it->low[i] / to_low * ds[i];
        if (has_high) high[i] = v->mu / to_high - it->high[i] + it->high[i] / to_high * ds[i];
        up = has_high && (y[i] >= 0 || !has_low);
        if (up) high[i] = y[i] + it->low[i] + low[i] - it->high[i];
        else low[i] = it->high[i] + high[i] - y[i] - it->low[i];
        of_limits += push(v, it, i) * ds[i];
        if (has_low) of_slacks = most(tau, to_low, ds[i], of_slacks), of_duals = most(tau, it->low[i], low[i], of_duals);
        if (has_high)
          of_slacks = most(tau, to_high, -ds[i], of_slacks), of_duals = most(tau, it->high[i], high[i], of_duals);
      }
      of_rows += (v->estimate[i] + residual(v, it->h, it->s, i) / v->soft) * (dh - ds[i]);
    }
    if (k == N) break;
    for (i = 0; i < n; ++i) {
      const double *f = b->F + (k * n + i) * q;
      double moved = -dx[(k + 1) * n + i];
      for (j = 0; j < n; ++j) moved += f[j] * x[j];
      for (j = n; j < q; ++j) moved += f[j] * u[j - n];
      of_gaps += (v->costates[(k + 1) * n + i] + it->gaps[k * n + i] / v->soft) * moved;
    }
  }
  found[0] = v->scale * cost + of_rows + of_gaps + of_limits;
  found[1] = of_slacks;
  found[2] = of_duals;
}

/* found: merit, barrier cost and violation of a point with slacks s. */
PUBLIC void vioc_subproblem_merit(const subproblem *v, const double *gaps, const double *h, double cost,
                                  const double *s, double *found) {
  double barrier_cost = v->scale * cost, rest = 0, violation = 0;
  Long i;
  for (i = 0; i < v->rows; ++i) {
    const double r = residual(v, h, s, i);
    rest += (v->estimate[i] + 0.5 / v->soft * r) * r;
    violation = largest(violation, r);
    if (v->kind[i] != INEQUALITY) continue;
    if (isfinite(v->lower[i])) barrier_cost -= v->mu * log(s[i] - v->lower[i]);
    if (isfinite(v->upper[i])) barrier_cost -= v->mu * log(v->upper[i] - s[i]);
  }
  for (i = 0; i < v->N * v->n; ++i) {
    rest += (v->costates[v->n + i] + 0.5 / v->soft * gaps[i]) * gaps[i];
    violation = largest(violation, gaps[i]);
  }
  found[0] = barrier_cost + rest;
  found[1] = barrier_cost;
  found[2] = violation;
}

static double of_slack(const subproblem *v, Long i, double h, double s) {
  const double r = h - s;
  double total = v->estimate[i] * r + 0.5 / v->soft * r * r;
  if (isfinite(v->lower[i])) total -= v->mu * log(s - v->lower[i]);
  if (isfinite(v->upper[i])) total -= v->mu * log(v->upper[i] - s);
  return total;
}

/* Replace the slacks s after a step by the better ones of a trial; it: iterate at the start of the step. */
PUBLIC void vioc_subproblem_trial_merit(const subproblem *v, const iterate *it, double keep, const double *gaps,
                                        const double *h, double cost, double *s, double *found) {
  Long i;
  for (i = 0; i < v->rows; ++i)
    if (v->kind[i] == INEQUALITY) {
      const double low = v->lower[i] + keep * (it->s[i] - v->lower[i]),
                   high = v->upper[i] - keep * (v->upper[i] - it->s[i]);
      const double there = h[i] < low ? low : h[i] > high ? high : h[i];
      if (of_slack(v, i, h[i], there) < of_slack(v, i, h[i], s[i])) s[i] = there;
    }
  vioc_subproblem_merit(v, gaps, h, cost, s, found);
}

/* Data of Newton's method kept between its two calls; m = q - n. */
typedef struct {
  double *M, *last, *v, *g, *end, *c; /* the linear-quadratic problem: vioc_subproblem_hessian, _linear */
  double *T, *P, *K, *L, *s, *d;      /* its factors, and results of `backward` for `forward` */
} kept;

/* `Newton.factor` for a given start; as vioc_chain_factor. */
PUBLIC Long vioc_newton_factor(const subproblem *v, const blocks *b, const iterate *it, const kept *k,
                               double of_states, double of_inputs, const double *of_start) {
  vioc_subproblem_hessian(v, b, it, of_states, of_inputs, of_start, k->M, k->last);
  return vioc_chain_factor(v->N, v->n, v->q, v->e, it->elastic, b->F, k->M, k->last, k->T, k->P, k->K, k->L);
}

/* `Newton.solve` with these factors, made with `soft`: x (N+1, n), whose first row is 0, u (N, m), p (N+1, n); `more` as
   vioc_subproblem_linear, out and found as vioc_subproblem_direction. */
PUBLIC void vioc_newton_solve(const subproblem *v, const blocks *b, const iterate *it, const kept *k, double soft,
                              double tau, const double *gaps, const double *r, const double *more, double *x,
                              double *u, double *p, double *out, double *found) {
  const Long N = v->N, n = v->n, q = v->q, e = v->e;
  vioc_subproblem_linear(v, b, it, gaps, r, more, k->v, k->g, k->end, k->c);
  vioc_chain_backward(N, n, q, e, soft, b->F, k->T, k->K, k->L, k->g, k->end, k->c, k->s, p, k->d);
  memset(x, 0, n * sizeof *x); /* the start is fixed, and its p is the last result of `backward` */
  vioc_chain_forward(N, n, q, e, soft, b->F, k->T, k->K, k->s, k->d, k->c, x, u, p + n);
  vioc_subproblem_direction(v, b, it, tau, r, k->v, x, u, out, found);
}

static double between(double low, double value, double high) { return value < low ? low : value > high ? high : value; }

/* p (N + 1, n) and y (rows,) after a fraction `length` of a step. Bound multipliers low and high (rows,) after a
   fraction `of_duals` of a step, within a factor `sigma` of the estimates of the barrier at slacks s. */
PUBLIC void vioc_subproblem_moved(const subproblem *v, const iterate *it, double length, double of_duals,
                                  double sigma, const double *to_p, const double *to_y, const double *of_low,
                                  const double *of_high, const double *s, double *p, double *y, double *low,
                                  double *high) {
  Long i;
  for (i = 0; i < (v->N + 1) * v->n; ++i) p[i] = it->p[i] + length * (to_p[i] - it->p[i]);
  for (i = 0; i < v->rows; ++i) {
    const double a = v->mu / (s[i] - v->lower[i]), z = v->mu / (v->upper[i] - s[i]);
    y[i] = it->y[i] + length * (to_y[i] - it->y[i]);
    low[i] = between(a / sigma, it->low[i] + of_duals * of_low[i], a * sigma);
    high[i] = between(z / sigma, it->high[i] + of_duals * of_high[i], z * sigma);
  }
}
