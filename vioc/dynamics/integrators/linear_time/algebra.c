/* SE(3) on three-vectors and 3 x 3 matrices by rows, and the closed forms of one body.

   Twists and wrenches have six entries, linear part first. See docs/maths/se3.md. The files of this folder are
   compiled as one. Functions of a single body are evaluated for several bodies at once: `lanes` contains one
   value for each of LANES bodies. Macros apply to doubles and lanes. core.c explains why this code is not
   generated. */

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

#ifdef __AVX512F__
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
typedef double lanes __attribute__((vector_size(LANES * sizeof(double))));

typedef struct { /* LANES bodies */
  lanes inertia[10], R[9], d[3]; /* displacement D */
  lanes X[6], b[3], P[6], mu[6];
} block;

#define cross(a, b, c) \
  ((c)[0] = (a)[1] * (b)[2] - (a)[2] * (b)[1], (c)[1] = (a)[2] * (b)[0] - (a)[0] * (b)[2], \
   (c)[2] = (a)[0] * (b)[1] - (a)[1] * (b)[0])
#define dot(a, b) ((a)[0] * (b)[0] + (a)[1] * (b)[1] + (a)[2] * (b)[2])
#define add(a, b) ((a)[0] += (b)[0], (a)[1] += (b)[1], (a)[2] += (b)[2])
#define skew_add(m, s, a) \
  ((m)[1] -= (s) * (a)[2], (m)[2] += (s) * (a)[1], (m)[3] += (s) * (a)[2], (m)[5] -= (s) * (a)[0], \
   (m)[6] -= (s) * (a)[1], (m)[7] += (s) * (a)[0])
#define outer_add(m, s, a, b) \
  do \
    for (int row_ = 0; row_ < 3; row_++) \
      for (int column_ = 0; column_ < 3; column_++) \
        (m)[3 * row_ + column_] += (s) * (a)[row_] * (b)[column_]; \
  while (0)

static inline void apply(const double *m, const double *a, double *b) {
  b[0] = dot(m, a);
  b[1] = dot(m + 3, a);
  b[2] = dot(m + 6, a);
}

static inline void apply_transposed(const double *m, const double *a, double *b) {
  for (int i = 0; i < 3; i++) b[i] = m[i] * a[0] + m[3 + i] * a[1] + m[6 + i] * a[2];
}

static inline void product(const double *a, const double *b, double *c) {
  for (int i = 0; i < 3; i++) {
    const double x = a[3 * i], y = a[3 * i + 1], z = a[3 * i + 2];
    for (int j = 0; j < 3; j++) c[3 * i + j] = x * b[j] + y * b[3 + j] + z * b[6 + j];
  }
}

/* C' m C, for a change of axes by C */
static inline void turned_back(const double *C, const double *m, double *out) {
  double t[9];
  product(m, C, t);
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++) out[3 * i + j] = C[i] * t[j] + C[3 + i] * t[3 + j] + C[6 + i] * t[6 + j];
}

/* C m C' */
static inline void turned(const double *C, const double *m, double *out) {
  double t[9];
  product(C, m, t);
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++) out[3 * i + j] = dot(t + 3 * i, C + 3 * j);
}

/* m Rz(angle): changes columns 0 and 1 */
static inline void columns_by_z(double *m, double c, double s) {
  for (int i = 0; i < 9; i += 3) {
    const double x = m[i], y = m[i + 1];
    m[i] = c * x + s * y;
    m[i + 1] = c * y - s * x;
  }
}

/* Rz(angle)' m: changes rows 0 and 1 */
static inline void rows_by_z(double *m, double c, double s) {
  for (int j = 0; j < 3; j++) {
    const double x = m[j], y = m[3 + j];
    m[j] = c * x + s * y;
    m[3 + j] = c * y - s * x;
  }
}

/* Rz(angle) m Rz(angle)' of a symmetric m = xx, yy, zz, xy, xz, yz, written out */
static inline void symmetric_by_z(const double *m, double c, double s, double *out) {
  const double cc = c * c, ss = s * s, cs = c * s, twice = 2 * cs * m[3];
  out[0] = cc * m[0] - twice + ss * m[1];
  out[4] = ss * m[0] + twice + cc * m[1];
  out[8] = m[2];
  out[1] = out[3] = cs * (m[0] - m[1]) + (cc - ss) * m[3];
  out[2] = out[6] = c * m[4] - s * m[5];
  out[5] = out[7] = s * m[4] + c * m[5];
}

static const int PAIRS[6][2] = {{0, 0}, {1, 1}, {2, 2}, {0, 1}, {0, 2}, {1, 2}};

static inline void vector_by_z(double *a, double c, double s) {
  const double x = a[0], y = a[1];
  a[0] = c * x - s * y;
  a[1] = s * x + c * y;
}

static const double TURN[14] = {1.,
                                2. / 3,
                                8. / 15,
                                16. / 35,
                                128. / 315,
                                256. / 693,
                                1024. / 3003,
                                2048. / 6435,
                                32768. / 109395,
                                65536. / 230945,
                                262144. / 969969,
                                524288. / 2028117,
                                4194304. / 16900975,
                                8388608. / 35102025};

/* angle/sin(angle) from the cosine of angle < pi: a series in the squared sine of an n-th of the angle */
static double turn_over_sine(double cosine) {
  double z, sum, scale;
  int terms;
  if (cosine > 0.995) {
    z = 0.5 * (1 - cosine), scale = 1, terms = 7;
  } else {
    const double half = sqrt(0.5 * (1 + cosine)), quarter = sqrt(0.5 * (1 + half)),
                 eighth = sqrt(0.5 * (1 + quarter));
    z = (1 - cosine) / (16 * (1 + half) * (1 + quarter) * (1 + eighth));
    scale = half * quarter * eighth, terms = 13;
  }
  sum = TURN[terms];
  while (terms--) sum = sum * z + TURN[terms];
  return scale == 1 ? sum : sum / scale;
}

static inline int all_below(lanes x, double bound) { /* false for a NaN */
  int good = 1;
  for (int i = 0; i < LANES; i++) good &= x[i] < bound;
  return good;
}

static inline lanes turns_over_sines(lanes cosine) {
  const lanes z = 0.5 - 0.5 * cosine;
  if (all_below(z, 0.0025)) {
    lanes sum = z * TURN[7] + TURN[6];
    for (int i = 5; i >= 0; i--) sum = sum * z + TURN[i];
    return sum;
  }
  lanes result;
  for (int i = 0; i < LANES; i++) result[i] = turn_over_sine(cosine[i]);
  return result;
}

/* series with Bernoulli numbers, 2 zeta(2k) / (2 pi)^2k, for t < 0.04 */
#define BERNOULLI(t, b) \
  ((b)[0] = 1. / 12 + (t) * (1. / 720 + (t) * (1. / 30240 + (t) * (1. / 1209600 + (t) * (1. / 47900160 + \
            (t) * (691. / 1307674368000))))), \
   (b)[1] = 1. / 720 + (t) * (2. / 30240 + (t) * (3. / 1209600 + (t) * (4. / 47900160 + \
            (t) * (5 * 691. / 1307674368000)))), \
   (b)[2] = 2. / 30240 + (t) * (6. / 1209600 + (t) * (12. / 47900160 + (t) * (20 * 691. / 1307674368000 + \
            (t) * 30. / 74724249600))))

/* beta(t) and its first and second derivative: the coefficient of w^ w^ in dlog of SO(3) at t = |w|^2 */
static void beta(double t, double *b) {
  if (t < 0.04) {
    BERNOULLI(t, b);
    return;
  }
  /* Lambert's continued fraction y cot y = 1 - s/(3 - s/(5 - ...)), s = t/4, with derivatives by s */
  const double s = 0.25 * t;
  double f = 21, f1 = 0, f2 = 0;
  for (int k = 19; k >= 3; k -= 2) {
    const double r = 1 / f, r1 = -f1 * r * r, r2 = (2 * f1 * f1 * r - f2) * r * r;
    f = k - s * r, f1 = -r - s * r1, f2 = -2 * r1 - s * r2;
  }
  const double r = 1 / f, r1 = -f1 * r * r, r2 = (2 * f1 * f1 * r - f2) * r * r;
  b[0] = r / 4, b[1] = r1 / 16, b[2] = r2 / 64;
}

static inline void betas(lanes t, lanes *b) {
  if (all_below(t, 0.04)) {
    BERNOULLI(t, b);
    return;
  }
  for (int i = 0; i < LANES; i++) {
    double one[3];
    beta(t[i], one);
    for (int k = 0; k < 3; k++) b[k][i] = one[k];
  }
}

/* G X of an inertia (m, h, xx, yy, zz, xy, xz, yz) about the link's origin */
static inline void momentum(const lanes *G, const lanes *X, lanes *P) {
  const lanes *h = G + 1, *I = G + 4, *v = X, *w = X + 3;
  lanes a[3], b[3];
  cross(w, h, a);
  cross(h, v, b);
  for (int i = 0; i < 3; i++) P[i] = G[0] * v[i] + a[i];
  P[3] = I[0] * w[0] + I[3] * w[1] + I[4] * w[2] + b[0];
  P[4] = I[3] * w[0] + I[1] * w[1] + I[5] * w[2] + b[1];
  P[5] = I[4] * w[0] + I[5] * w[1] + I[2] * w[2] + b[2];
}

/* X = log(R, d) */
static inline void logarithm(const lanes *R, const lanes *d, lanes *X, lanes *b) {
  const lanes scale = 0.5 * turns_over_sines(0.5 * (R[0] + R[4] + R[8] - 1));
  lanes *w = X + 3, a[3], c[3];
  w[0] = scale * (R[7] - R[5]);
  w[1] = scale * (R[2] - R[6]);
  w[2] = scale * (R[3] - R[1]);
  betas(dot(w, w), b);
  cross(w, d, a);
  cross(w, a, c);
  for (int i = 0; i < 3; i++) X[i] = d[i] - 0.5 * a[i] + b[0] * c[i];
}

/* dlog_X^T P */
static inline void dlog_transposed(const lanes *X, const lanes *b, const lanes *P, lanes *mu) {
  const lanes *v = X, *w = X + 3, *f = P, *m = P + 3;
  lanes turn[3], twice[3], lever[3], other[3], mixed[3], more[3];
  cross(w, f, turn);
  cross(w, turn, twice);
  cross(v, f, lever);
  cross(w, m, other);
  add(lever, other);
  cross(v, turn, mixed);
  cross(w, lever, more);
  const lanes slope = 2 * b[1] * dot(w, v);
  for (int i = 0; i < 3; i++) {
    mu[i] = f[i] + 0.5 * turn[i] + b[0] * twice[i];
    mu[3 + i] = m[i] + 0.5 * lever[i] + b[0] * (mixed[i] + more[i]) + slope * twice[i];
  }
}

/* Ad_exp(X)^T dlog_X^T P = dlog_X^T P + ad_X^T P */
static inline void momentum_at_end(const lanes *X, const lanes *P, const lanes *mu, lanes *nu) {
  const lanes *v = X, *w = X + 3;
  lanes a[3], b[3], c[3];
  cross(w, P, a);
  cross(v, P, b);
  cross(w, P + 3, c);
  for (int i = 0; i < 3; i++) nu[i] = mu[i] - a[i], nu[3 + i] = mu[3 + i] - b[i] - c[i];
}

static inline void product_lanes(const lanes *a, const lanes *b, lanes *c) {
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++)
      c[3 * i + j] = a[3 * i] * b[j] + a[3 * i + 1] * b[3 + j] + a[3 * i + 2] * b[6 + j];
}

/* M = d mu / d eta = 1/h ( [[E, 0], [N, E]] G + [[0, k], [k, K]] ) [[E, N], [0, E]]: four blocks of 9.
   E = 1 + w^/2 + beta w^ w^ and N its derivative along v; dlog_X^T is [[E, 0], [N, E]]. P is G X / h. */
static void momentum_derivative(const block *B, double h, lanes *M) {
  const lanes *G = B->inertia, *X = B->X, *b = B->b, *P = B->P;
  const lanes *v = X, *w = X + 3, *f = P, *m = P + 3;
  const double inverse = 1 / h;
  const lanes t = dot(w, w), wv = dot(w, v), s = 2 * b[1] * wv;
  lanes E[9] = {0}, N[9] = {0}, k[9] = {0}, K[9] = {0}, inner[9] = {0};
  E[0] = E[4] = E[8] = 1 - b[0] * t;
  skew_add(E, 0.5, w);
  outer_add(E, b[0], w, w);
  N[0] = N[4] = N[8] = -2 * b[0] * wv - s * t;
  skew_add(N, 0.5, v);
  outer_add(N, b[0], w, v);
  outer_add(N, b[0], v, w);
  outer_add(N, s, w, w);

  lanes turn[3], twice[3], lever[3], other[3], mixed[3], more[3];
  cross(w, f, turn);
  cross(w, turn, twice);
  cross(v, f, lever);
  cross(w, m, other);
  add(lever, other);
  cross(v, turn, mixed);
  cross(w, lever, more);
  add(mixed, more);
  const lanes wf = dot(w, f);
  inner[0] = inner[4] = inner[8] = wf; /* (w x f)^ + w^ f^ with the sign of beta */
  skew_add(inner, -1, turn);
  outer_add(inner, -1, f, w);
  skew_add(k, -0.5, f);
  for (int i = 0; i < 9; i++) k[i] += b[0] * inner[i];
  outer_add(k, 2 * b[1], twice, w);
  const lanes all = dot(v, f) + dot(w, m);
  K[0] = K[4] = K[8] = b[0] * all;
  skew_add(K, -0.5, m);
  skew_add(K, -b[0], lever);
  outer_add(K, -b[0], f, v);
  outer_add(K, -b[0], m, w);
  for (int i = 0; i < 9; i++) K[i] += s * inner[i];
  outer_add(K, 2 * b[1], mixed, w);
  outer_add(K, 2 * b[1], twice, v);
  outer_add(K, 4 * b[2] * wv, twice, w);

  const lanes *I = G + 4, mass = G[0] * inverse;
  lanes first[9] = {0}, inertia[9], Eh[9], Nh[9], EI[9], Y12[9], Y21[9], Y22[9], a[9], c[9];
  skew_add(first, inverse, G + 1);
  inertia[0] = inverse * I[0], inertia[4] = inverse * I[1], inertia[8] = inverse * I[2];
  inertia[1] = inertia[3] = inverse * I[3];
  inertia[2] = inertia[6] = inverse * I[4];
  inertia[5] = inertia[7] = inverse * I[5];
  product_lanes(E, first, Eh);
  product_lanes(N, first, Nh);
  product_lanes(E, inertia, EI);
  for (int i = 0; i < 9; i++) {
    Y12[i] = k[i] - Eh[i];
    Y21[i] = mass * N[i] + Eh[i] + k[i];
    Y22[i] = EI[i] - Nh[i] + K[i];
  }
  product_lanes(E, E, M);
  product_lanes(E, N, a);
  product_lanes(Y12, E, c);
  for (int i = 0; i < 9; i++) M[i] *= mass, M[9 + i] = mass * a[i] + c[i];
  product_lanes(Y21, E, M + 18);
  product_lanes(Y21, N, a);
  product_lanes(Y22, E, c);
  for (int i = 0; i < 9; i++) M[27 + i] = a[i] + c[i];
}
