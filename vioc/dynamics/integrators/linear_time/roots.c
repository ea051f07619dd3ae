/* Parts of root finders: K by columns, Broyden's updates, the size of a correction, the rounding floor. Dense K
   and its LU factorization serve for comparison, as in [L] (study linear_time_scaling). core.c explains why this
   code is not generated. */

/* K by columns in O(n^2) ([L] Algorithm 4); phi contains the M_i, V and F are overwritten */
static void jacobian(step *w) {
  const model *m = w->m;
  stiffen(w);
  for (long long j = 0; j < m->n; j++) {
    if (m->row[j] < 0) continue;
    for (long long i = 0; i < m->n; i++) {
      link *l = w->L + i;
      if (m->parent[i] < 0 || i <= j)
        memset(l->V, 0, sizeof l->V);
      else
        down(m, i, l->c1, l->s1, l->p1, w->L[m->parent[i]].V, l->V);
      if (i == j) l->V[2] = m->slide[i], l->V[5] = m->turn[i];
      for (int k = 0; k < 3; k++) {
        l->F[k] = dot(w->phi + 36 * i + 3 * k, l->V) + dot(w->phi + 36 * i + 9 + 3 * k, l->V + 3);
        l->F[3 + k] = dot(w->phi + 36 * i + 18 + 3 * k, l->V) + dot(w->phi + 36 * i + 27 + 3 * k, l->V + 3);
      }
    }
    gather(w, w->c);
    for (long long i = 0; i < m->nd; i++) w->matrix[i * m->nd + m->row[j]] = w->c[i];
    w->matrix[m->row[j] * (m->nd + 1)] += 0.5 * m->damping[m->row[j]];
  }
}

/* LU factorization with pivoting; returns the sign of the determinant */
static int lu(double *a, long long n, long long *pivot) {
  int sign = 1;
  for (long long k = 0; k < n; k++) {
    long long best = k;
    for (long long i = k + 1; i < n; i++)
      if (fabs(a[i * n + k]) > fabs(a[best * n + k])) best = i;
    pivot[k] = best;
    if (best != k)
      for (long long j = 0; j < n; j++) {
        const double x = a[k * n + j];
        a[k * n + j] = a[best * n + j], a[best * n + j] = x;
      }
    sign *= (best == k ? 1 : -1) * (a[k * n + k] > 0 ? 1 : -1);
    for (long long i = k + 1; i < n; i++) {
      const double x = a[i * n + k] /= a[k * n + k];
      for (long long j = k + 1; j < n; j++) a[i * n + j] -= x * a[k * n + j];
    }
  }
  return sign;
}

static void lu_solve(const double *a, long long n, const long long *pivot, const double *b, double *x) {
  memcpy(x, b, n * sizeof *x);
  for (long long k = 0; k < n; k++) {
    const double y = x[pivot[k]];
    x[pivot[k]] = x[k], x[k] = y;
  }
  for (long long i = 0; i < n; i++)
    for (long long j = 0; j < i; j++) x[i] -= a[i * n + j] * x[j];
  for (long long i = n - 1; i >= 0; i--) {
    for (long long j = i + 1; j < n; j++) x[i] -= a[i * n + j] * x[j];
    x[i] /= a[i * n + i];
  }
}

/* Broyden's good update of a fixed K, in O(n) from the corrections s alone (Kelley, Iterative Methods for
   Linear and Nonlinear Equations, 7.3): K_j+1^-1 = (1 + s_j+1 s_j' / s_j's_j) K_j^-1. Converts c = K^-1 r to
   the correction s_j. If c hardly decreases, as at the rounding floor, the last update is omitted. */
static void secant(step *w, long long j, double *c) {
  const long long nd = w->m->nd;
  double *s = w->secants;
  if (j >= SECANTS) return;
  for (long long i = 0; i < j; i++, s += nd) {
    double along = 0;
    for (long long k = 0; k < nd; k++) along += s[k] * c[k];
    along /= w->squares[i];
    if (i == j - 1) {
      const double scale = fabs(along) < 0.5 ? 1 / (1 - along) : 1;
      for (long long k = 0; k < nd; k++) c[k] *= scale;
    } else {
      for (long long k = 0; k < nd; k++) c[k] += along * s[nd + k];
    }
  }
  memcpy(s, c, nd * sizeof *c);
  w->squares[j] = 1e-300;
  for (long long k = 0; k < nd; k++) w->squares[j] += c[k] * c[k];
}

/* Returns the norm of a correction c of q, weighted by masses; `relative` is its 2-norm relative to its natural unit + |q|. */
static double size_of(const step *w, const double *c, double *relative) {
  double size = 0, sum = 0;
  for (long long k = 0; k < w->m->nd; k++) {
    const double e = c[k] * w->unit[k];
    sum += e * e;
    size += w->m->mass[k] * c[k] * c[k];
  }
  *relative = sqrt(sum);
  return sqrt(size);
}

/* Estimate of the 2-norm of the residual due to rounding: the unit roundoff of q times the diagonal of K for the
   stretched tree (mass, first and second moments of each subtree). */
static double rounding_floor(step *w) {
  const model *m = w->m;
  double sum = 0;
  for (long long i = 0; i < m->n; i++) {
    const double *G = m->inertia + 10 * i;
    double *s = w->L[i].V;
    s[0] = G[0], s[1] = sqrt(dot(G + 1, G + 1)), s[2] = G[4] + G[5] + G[6];
  }
  for (long long i = m->n - 1; i >= 0; i--) {
    const double *s = w->L[i].V, *p = w->L[i].p0, a = fabs(m->slide[i]), b = fabs(m->turn[i]);
    if (m->row[i] >= 0) {
      const double q = fmax(1, fabs(w->q1[m->index[i]]));
      const double size = q * (a * a * s[0] + 2 * a * b * s[1] + b * b * s[2]);
      sum += size * size;
    }
    if (m->parent[i] < 0) continue;
    double *up = w->L[m->parent[i]].V, length = sqrt(dot(p, p));
    up[0] += s[0], up[1] += s[1] + length * s[0], up[2] += s[2] + length * (2 * s[1] + length * s[0]);
  }
  return DBL_EPSILON * sqrt(sum) / w->h;
}
