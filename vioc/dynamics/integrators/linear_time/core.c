/* The linear-time variational integrator for any tree: data of a model and of a step, and DRNEA
   ([L] Algorithms 2-4, docs/maths/linear_time.md).

   Links are ordered with parents first, one per variable. The frame of each link has the joint axis as z axis:
   S = (0, 0, slide, 0, 0, turn). Models are arguments, as arrays.

   This code is not generated, because code generated from the graphs of drnea.py takes 1.3, 1.5 and 1.7 times
   as long per step for spatial chains of 20, 40 and 100 links (0.8 to 1.2 times for planar chains, whose zeros
   the graphs omit), and needs 11, 18 and 36 s of compilation for every model. This code is compiled once on a
   machine, in 1.6 s. docs/maths/linear_time.md, "Speed of the compiled core", has the figures. */

typedef int (*callback)(const double **, double **, long long *, double *, int);

typedef struct {
  long long n, nq, nd, nf;
  const long long *parent, *index, *row; /* index in q; among the dynamic variables, or -1 */
  const long long *heavy, *plain;        /* has an inertia; frame not rotated in the parent */
  const double *fixed;                   /* 12: rotation by rows and position of the joint in the parent */
  const double *turn, *slide;            /* per unit of q */
  const double *inertia;                 /* 10: m, m c, xx, yy, zz, xy, xz, yz */
  const double *damping, *mass, *size;   /* (nd); typical masses and natural units scale corrections */
  const long long *drive;                /* (nf) dynamic variable of an input, -1 for none */
  double gravity[3];
  callback extra; /* (q0, q1, u, t, dt, parameters) -> impulses of other forces at both ends, or null */
  long long n_arg, n_res, n_iw, n_w;
  const double *parameters;
} model;

typedef struct {
  long long solver, guess; /* the enumerations below */
  long long limit;         /* iterations */
  double correction;       /* correction of q relative to its natural unit + |q| that ends a step */
  double residual;         /* 2-norm of the residual that ends a step; negative: none */
  double tolerance;        /* largest accepted correction that does not decrease further */
  double contraction;      /* largest ratio of successive corrections that certifies a root */
} options;

enum { CHORD, RIQN, NEWTON, DENSE };
enum { IG1, IG2, PREDICTED };
enum { SECANTS = 8 }; /* number of Broyden's updates in a step */
static const double FAR = 1; /* rad, largest change of an angle in the guess, as in predictor.py */

typedef struct {
  double c0, s0, p0[3], c1, s1, p1[3]; /* joint at both ends of the step */
  double R[9], d[3];                   /* displacement D */
  double F[6], V[6], A[6];
  double U[6], W[6], inverse, along[2], rest;
} link;

typedef struct {
  const model *m;
  link *L;
  block *B;        /* bodies with inertia, in their order */
  long long *slot; /* index of a link in B, or -1 */
  void *memory;
  double *phi; /* 36 entries a link: M_i, then the articulated inertia */
  double h, *q0, *q1, *rates, *base, *r, *c, *minus, *plus, *matrix, *unit;
  long long blocks, *pivot;
  int heavy; /* whether there is gravity */
  const double **arg;
  double **res, *w;
  long long *iw;
  double *secants, squares[SECANTS];
  const double *u;
  double t;
  int suspect; /* whether a pivot of K has another sign than those of M/h, or corrections do not contract */
} step;

/* -- transforms of one joint ---------------------------------------------------------------------- */

static void place(const model *m, long long i, double q, double *c, double *s, double *p) {
  const double *f = m->fixed + 12 * i, z = m->slide[i] * q;
  if (m->turn[i] != 0) {
    *c = cos(m->turn[i] * q), *s = sin(m->turn[i] * q);
  } else {
    *c = 1, *s = 0;
  }
  for (int k = 0; k < 3; k++) p[k] = f[9 + k] + z * f[3 * k + 2];
}

/* the same near a known q0: sine and cosine of the difference by their series */
static void place_near(const model *m, long long i, double q, double q0, link *l) {
  const double x = m->turn[i] * (q - q0), y = x * x;
  if (y > 0.01) {
    place(m, i, q, &l->c1, &l->s1, l->p1);
    return;
  }
  const double *f = m->fixed + 12 * i, z = m->slide[i] * q;
  const double s = x * (1 - y / 6 * (1 - y / 20 * (1 - y / 42 * (1 - y / 72))));
  const double v = y / 2 * (1 - y / 12 * (1 - y / 30 * (1 - y / 56 * (1 - y / 90)))); /* 1 - cos */
  l->c1 = l->c0 - (l->c0 * v + l->s0 * s);
  l->s1 = l->s0 - (l->s0 * v - l->c0 * s);
  for (int k = 0; k < 3; k++) l->p1[k] = f[9 + k] + z * f[3 * k + 2];
}

/* out += the wrench F of a link, in its parent's axes, and u U */
static inline void up_with(const model *m, long long i, double c, double s, const double *p, const double *F,
                           double u, const double *U, double *out) {
  double f[6], g[6], *a = f;
  memcpy(f, F, sizeof f);
  vector_by_z(f, c, s);
  vector_by_z(f + 3, c, s);
  if (!m->plain[i]) {
    apply(m->fixed + 12 * i, f, g);
    apply(m->fixed + 12 * i, f + 3, g + 3);
    a = g;
  }
  double x[3];
  cross(p, a, x);
  for (int k = 0; k < 3; k++) a[3 + k] += x[k];
  if (U)
    for (int k = 0; k < 6; k++) a[k] += u * U[k];
  for (int k = 0; k < 6; k++) out[k] += a[k];
}

static inline void up(const model *m, long long i, double c, double s, const double *p, const double *F,
                      double *out) {
  up_with(m, i, c, s, p, F, 0, 0, out);
}

static inline void down(const model *m, long long i, double c, double s, const double *p, const double *V,
                        double *out) {
  double x[3], g[6];
  cross(V + 3, p, x);
  for (int k = 0; k < 3; k++) g[k] = V[k] + x[k], g[3 + k] = V[3 + k];
  if (m->plain[i]) {
    memcpy(out, g, sizeof g);
  } else {
    apply_transposed(m->fixed + 12 * i, g, out);
    apply_transposed(m->fixed + 12 * i, g + 3, out + 3);
  }
  vector_by_z(out, c, -s);
  vector_by_z(out + 3, c, -s);
}

static inline double along(const model *m, long long i, const double *F) {
  return m->slide[i] * F[2] + m->turn[i] * F[5];
}

/* -- DRNEA ---------------------------------------------------------------------------------------- */

/* displacements, average twists and momenta of the bodies for a step to q1 */
static void forward(step *w, const double *q1) {
  const model *m = w->m;
  const double inverse = 1 / w->h;
  for (long long i = 0; i < m->n; i++) {
    link *l = w->L + i;
    const double *f = m->fixed + 12 * i;
    double t[3];
    place_near(m, i, q1[m->index[i]], w->q0[m->index[i]], l);
    if (m->parent[i] < 0) {
      for (int k = 0; k < 3; k++) t[k] = l->p1[k] - l->p0[k];
      memset(l->R, 0, sizeof l->R);
      l->R[0] = l->R[4] = l->R[8] = 1;
    } else {
      const link *p = w->L + m->parent[i];
      apply(p->R, l->p1, t);
      for (int k = 0; k < 3; k++) t[k] += p->d[k] - l->p0[k];
      if (m->plain[i])
        memcpy(l->R, p->R, sizeof l->R);
      else
        turned_back(f, p->R, l->R);
    }
    if (m->plain[i])
      memcpy(l->d, t, sizeof t);
    else
      apply_transposed(f, t, l->d);
    if (m->turn[i] != 0) {
      columns_by_z(l->R, l->c1, l->s1);
      rows_by_z(l->R, l->c0, l->s0);
      vector_by_z(l->d, l->c0, -l->s0);
    }
    const long long slot = w->slot[i], lane = slot % LANES;
    if (slot >= 0) {
      block *B = w->B + slot / LANES;
      for (int k = 0; k < 9; k++) B->R[k][lane] = l->R[k];
      for (int k = 0; k < 3; k++) B->d[k][lane] = l->d[k];
    }
  }
  for (long long i = 0; i < w->blocks; i++) {
    block *B = w->B + i;
    lanes P[6];
    logarithm(B->R, B->d, B->X, B->b);
    momentum(B->inertia, B->X, P);
    for (int k = 0; k < 6; k++) B->P[k] = inverse * P[k];
    dlog_transposed(B->X, B->b, B->P, B->mu);
  }
}

/* writes the wrenches mu of the bodies to F, or to A if `second` */
static void collect(step *w, int second) {
  for (long long i = 0; i < w->m->n; i++) {
    const long long slot = w->slot[i], lane = slot % LANES;
    double *F = second ? w->L[i].A : w->L[i].F;
    for (int k = 0; k < 6; k++) F[k] = slot < 0 ? 0 : w->B[slot / LANES].mu[k][lane];
  }
}

/* S . (sum over the subtree) of the wrenches in F, by dynamic variable, at the start of the step */
static void gather(step *w, double *out) {
  const model *m = w->m;
  for (long long i = m->n - 1; i >= 0; i--) {
    link *l = w->L + i;
    if (m->row[i] >= 0) out[m->row[i]] = along(m, i, l->F);
    if (m->parent[i] >= 0) up(m, i, l->c0, l->s0, l->p0, l->F, w->L[m->parent[i]].F);
  }
}

/* the same for F at the start and A at the start or the end; both together take little longer than one */
static void gather_both(step *w, int end, double *first, double *second) {
  const model *m = w->m;
  for (long long i = m->n - 1; i >= 0; i--) {
    link *l = w->L + i;
    if (m->row[i] >= 0) first[m->row[i]] = along(m, i, l->F), second[m->row[i]] = along(m, i, l->A);
    if (m->parent[i] < 0) continue;
    link *parent = w->L + m->parent[i];
    up(m, i, l->c0, l->s0, l->p0, l->F, parent->F);
    if (end)
      up(m, i, l->c1, l->s1, l->p1, l->A, parent->A);
    else
      up(m, i, l->c0, l->s0, l->p0, l->A, parent->A);
  }
}

static void other_forces(step *w, const double *q1) {
  const model *m = w->m;
  memset(w->minus, 0, m->nd * sizeof(double));
  memset(w->plus, 0, m->nd * sizeof(double));
  if (!m->extra) return;
  w->arg[0] = w->q0, w->arg[1] = q1, w->arg[2] = w->u, w->arg[3] = &w->t, w->arg[4] = &w->h;
  w->arg[5] = m->parameters;
  w->res[0] = w->minus, w->res[1] = w->plus;
  m->extra(w->arg, w->res, w->iw, w->w, 0);
}

/* r = p + D1 L_d + F- at q1, from its kinetic part in r; base contains the terms that do not depend on q1 */
static void balance(step *w, const double *q1) {
  const model *m = w->m;
  other_forces(w, q1);
  for (long long i = 0; i < m->n; i++) {
    const long long j = m->row[i], k = m->index[i];
    if (j >= 0) w->r[j] = w->base[j] - w->r[j] + w->minus[j] - 0.5 * m->damping[j] * (q1[k] - w->q0[k]);
  }
}

/* wrenches += scale times the bodies' weights: F at the start, A at the end */
static void weigh(step *w, int end, double scale) {
  const model *m = w->m;
  for (long long i = 0; i < m->n; i++) {
    link *l = w->L + i;
    const double *g = m->parent[i] < 0 ? m->gravity : w->L[m->parent[i]].V, *G = m->inertia + 10 * i;
    if (m->plain[i])
      memcpy(l->V, g, 3 * sizeof *g);
    else
      apply_transposed(m->fixed + 12 * i, g, l->V);
    vector_by_z(l->V, end ? l->c1 : l->c0, end ? -l->s1 : -l->s0);
    double lever[3], *F = end ? l->A : l->F;
    cross(G + 1, l->V, lever);
    for (int k = 0; k < 3; k++) F[k] += scale * G[0] * l->V[k], F[3 + k] += scale * lever[k];
  }
}
