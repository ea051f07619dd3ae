/* The articulated-body recursion for M(q0)/h, and for the exact K without symmetry. core.c explains why this
   code is not generated. U = Phi S and W = Phi' S / d are stored in the parent's axes: there the
   contribution of a link to its parent does not depend on its pivot. */

/* sets the pivot of a link, and U, W from their values in the axes of the link */
static inline void pivot(step *w, long long i, int start, const double *U, const double *W) {
  const model *m = w->m;
  link *l = w->L + i;
  l->inverse = 1 / (along(m, i, U) + 0.5 * m->damping[m->row[i]]);
  l->along[0] = l->inverse * m->slide[i], l->along[1] = l->inverse * m->turn[i];
  w->suspect |= !(l->inverse * w->h > 0);
  if (m->parent[i] < 0) return;
  memset(l->U, 0, sizeof l->U);
  up(m, i, l->c0, l->s0, l->p0, U, l->U);
  if (start) {
    memcpy(l->W, l->U, sizeof l->W);
  } else {
    memset(l->W, 0, sizeof l->W);
    up(m, i, l->c1, l->s1, l->p1, W, l->W);
  }
  for (int k = 0; k < 6; k++) l->W[k] *= l->inverse;
}

/* factors of M(q0) / h: symmetric, [[a, b], [b', d]] with a and d as xx, yy, zz, xy, xz, yz, in phi */
static void factorize_start(step *w) {
  const model *m = w->m;
  const double inverse = 1 / w->h;
  for (long long i = 0; i < m->n; i++) {
    double *phi = w->phi + 36 * i;
    const double *G = m->inertia + 10 * i;
    memset(phi, 0, 21 * sizeof *phi);
    if (!m->heavy[i]) continue;
    phi[0] = phi[1] = phi[2] = inverse * G[0];
    skew_add(phi + 6, -inverse, G + 1);
    for (int k = 0; k < 6; k++) phi[15 + k] = inverse * G[4 + k];
  }
  for (long long i = m->n - 1; i >= 0; i--) {
    link *l = w->L + i;
    const double *a = w->phi + 36 * i, *b = a + 6, *d = b + 9, *p = l->p0;
    if (m->row[i] >= 0) {
      const double s = m->slide[i], t = m->turn[i];
      const double U[6] = {s * a[4] + t * b[2],     s * a[5] + t * b[5],     s * a[2] + t * b[8],
                           s * b[6] + t * d[4], s * b[7] + t * d[5], s * b[8] + t * d[2]};
      pivot(w, i, 1, U, U);
    }
    if (m->parent[i] < 0) continue;
    double A[9], B[9], C[9], x[3][3], y[3][3], *to = w->phi + 36 * m->parent[i];
    symmetric_by_z(a, l->c0, l->s0, A);
    symmetric_by_z(d, l->c0, l->s0, C);
    memcpy(B, b, sizeof B);
    columns_by_z(B, l->c0, -l->s0);
    rows_by_z(B, l->c0, -l->s0);
    if (!m->plain[i]) {
      const double *f = m->fixed + 12 * i;
      double t[9];
      turned(f, A, t), memcpy(A, t, sizeof t);
      turned(f, B, t), memcpy(B, t, sizeof t);
      turned(f, C, t), memcpy(C, t, sizeof t);
    }
    /* [[A, B], [B', C]] -> [[1, 0], [p^, 1]] [[A, B], [B', C]] [[1, -p^], [0, 1]] */
    for (int j = 0; j < 3; j++) {
      const double column[3] = {B[j], B[3 + j], B[6 + j]};
      cross(column, p, x[j]);
    }
    for (int j = 0; j < 3; j++) { /* row x of a block times p^ is the cross product x x p */
      double t[3];
      cross(A + 3 * j, p, t);
      for (int k = 0; k < 3; k++) B[3 * j + k] -= t[k];
    }
    for (int j = 0; j < 3; j++) {
      const double column[3] = {B[j], B[3 + j], B[6 + j]};
      cross(p, column, y[j]);
    }
    for (int k = 0; k < 6; k++) {
      const int r = PAIRS[k][0], c = PAIRS[k][1];
      to[k] += A[3 * r + c];
      to[15 + k] += C[3 * r + c] - x[r][c] + y[c][r];
    }
    for (int k = 0; k < 9; k++) to[6 + k] += B[k];
    if (m->row[i] < 0) continue;
    for (int k = 0; k < 6; k++) {
      const int r = PAIRS[k][0], c = PAIRS[k][1];
      to[k] -= l->U[r] * l->W[c];
      to[15 + k] -= l->U[3 + r] * l->W[3 + c];
    }
    outer_add(to + 6, -1, l->U, l->W + 3);
  }
}

/* writes the M_i at the iterate to phi */
static void stiffen(step *w) {
  const model *m = w->m;
  lanes M[36];
  for (long long i = 0; i < m->n; i++) {
    const long long slot = w->slot[i], lane = slot % LANES;
    if (slot < 0) {
      memset(w->phi + 36 * i, 0, 36 * sizeof(double));
      continue;
    }
    if (lane == 0) momentum_derivative(w->B + slot / LANES, w->h, M);
    for (int k = 0; k < 36; k++) w->phi[36 * i + k] = M[k][lane];
  }
}

/* factors of the exact K at the iterate */
static void factorize(step *w) {
  const model *m = w->m;
  stiffen(w);
  for (long long i = m->n - 1; i >= 0; i--) {
    link *l = w->L + i;
    double *phi = w->phi + 36 * i;
    if (m->row[i] >= 0) {
      const double a = m->turn[i], b = m->slide[i];
      double U[6], W[6];
      for (int k = 0; k < 3; k++) {
        U[k] = b * phi[3 * k + 2] + a * phi[9 + 3 * k + 2];
        U[3 + k] = b * phi[18 + 3 * k + 2] + a * phi[27 + 3 * k + 2];
        W[k] = b * phi[6 + k] + a * phi[18 + 6 + k];
        W[3 + k] = b * phi[9 + 6 + k] + a * phi[27 + 6 + k];
      }
      pivot(w, i, 0, U, W);
    }
    if (m->parent[i] < 0) continue;
    double *to = w->phi + 36 * m->parent[i];
    for (int k = 0; k < 4; k++) {
      double *x = phi + 9 * k, y[9];
      columns_by_z(x, l->c1, -l->s1);
      rows_by_z(x, l->c0, -l->s0);
      if (!m->plain[i]) {
        turned(m->fixed + 12 * i, x, y);
        memcpy(x, y, sizeof y);
      }
    }
    /* [[a, b], [c, d]] -> [[1, 0], [p0^, 1]] [[a, b], [c, d]] [[1, -p1^], [0, 1]] */
    for (int k = 0; k < 3; k++) {
      double x[3];
      cross(phi + 3 * k, l->p1, x);
      for (int j = 0; j < 3; j++) phi[9 + 3 * k + j] -= x[j];
      cross(phi + 18 + 3 * k, l->p1, x);
      for (int j = 0; j < 3; j++) phi[27 + 3 * k + j] -= x[j];
    }
    const double *p = l->p0;
    for (int j = 0; j < 3; j++) {
      for (int k = 0; k < 2; k++) {
        const double *x = phi + 9 * k + j;
        double *y = phi + 18 + 9 * k + j;
        y[0] += p[1] * x[6] - p[2] * x[3];
        y[3] += p[2] * x[0] - p[0] * x[6];
        y[6] += p[0] * x[3] - p[1] * x[0];
      }
    }
    for (int k = 0; k < 36; k++) to[k] += phi[k];
    if (m->row[i] < 0) continue;
    for (int k = 0; k < 2; k++)
      for (int j = 0; j < 2; j++) outer_add(to + 18 * k + 9 * j, -1, l->U + 3 * k, l->W + 3 * j);
  }
}

/* c = K^-1 b; if `start`, with the factors of the start */
static void solve(step *w, const double *b, double *c, int start) {
  const model *m = w->m;
  for (long long i = 0; i < m->n; i++) memset(w->L[i].F, 0, sizeof w->L[i].F);
  for (long long i = m->n - 1; i >= 0; i--) {
    link *l = w->L + i;
    const long long up_to = m->parent[i], row = m->row[i];
    if (row >= 0) l->rest = b[row] * l->inverse - (l->along[0] * l->F[2] + l->along[1] * l->F[5]);
    if (up_to >= 0) up_with(m, i, l->c0, l->s0, l->p0, l->F, l->rest, row >= 0 ? l->U : 0, w->L[up_to].F);
  }
  for (long long i = 0; i < m->n; i++) {
    link *l = w->L + i;
    double x = l->rest;
    if (m->parent[i] < 0) {
      memset(l->V, 0, sizeof l->V);
    } else {
      const double *V = w->L[m->parent[i]].V, *W = l->W;
      if (start)
        down(m, i, l->c0, l->s0, l->p0, V, l->V);
      else
        down(m, i, l->c1, l->s1, l->p1, V, l->V);
      x -= dot(W, V) + dot(W + 3, V + 3);
    }
    if (m->row[i] >= 0) {
      c[m->row[i]] = x;
      l->V[2] += m->slide[i] * x;
      l->V[5] += m->turn[i] * x;
    }
  }
}
