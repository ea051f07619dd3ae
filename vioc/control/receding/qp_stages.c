/* A quadratic program of stages, by an interior point with a Riccati recursion; docs/maths/receding.md.

     minimize  sum over k < N of 1/2 z_k'H_k z_k + g_k'z_k  +  1/2 x_N'H_end x_N + g_end'x_N,   z_k = (x_k, u_k),
     x_k+1 = F_k z_k + c_k,   x_0 given,   lower_k <= rows_k(z_k) <= upper_k,   lower_end <= J_end x_N <= upper_end.

   The rows of a stage are QP_NB entries of z, `at`, then QP_NG general ones, J z. A limit is there where its size is
   below QP_NONE; equal limits make an equation. A row r with linear[r] >= 0 is soft: by e beyond a limit it costs
   linear[r] e + 1/2 square[r] e^2, square[r] > 0.

   Written by hand, also for the machine of a controller: the program without its states, by an active-set method
   (condensed.py), takes 11 times the time for 40 steps of a cart-pole, 8 times for 30 of an arm with seven joints.

   Before this text, macros say what it is compiled for:
     QP_NAME    prefix of all names           QP_N           most steps; `data.steps` of them are solved
     QP_NX, QP_NU  states, inputs             QP_NB, QP_NG, QP_NE  bounds and general rows of a stage, rows at the end
     QP_SOFT    1 where rows may be soft      QP_FLOAT       1 for single precision
     QP_API     storage class of functions, such as `static`; nothing by default

   NAME_data is given, NAME_state is kept by the caller; both may be static and zero at first. Nothing is allocated.
     int NAME_solve(const NAME_data *d, NAME_state *s, const real *x0, int iterations, real tolerance, int warm)
   Where tolerance is 0, exactly `iterations` are done. `warm` begins from what `s` has. It returns
     0  solved to the tolerance, or all iterations done where that is 0
     1  not to the tolerance within the iterations
     2  no minimum: a stage's Hessian by u is not positive definite on the way
     3  not finite
   s->x, s->u are the answer, s->y (stages, then end) the multipliers of rows, >= 0 at upper limits, s->p costates,
   s->done the iterations, s->apart the gap over the cost's unit (RH 9), s->left the share of what the first iterate
   left of rows. */

#include <float.h>
#include <math.h>
#include <string.h>

#if !defined(QP_NAME) || !defined(QP_N) || !defined(QP_NX) || !defined(QP_NU)
#error "qp.c: define QP_NAME, QP_N, QP_NX, QP_NU (and QP_NB, QP_NG, QP_NE, QP_SOFT, QP_FLOAT) first"
#endif
#ifndef QP_NB
#define QP_NB 0
#endif
#ifndef QP_NG
#define QP_NG 0
#endif
#ifndef QP_NE
#define QP_NE 0
#endif
#ifndef QP_SOFT
#define QP_SOFT 0
#endif
#ifndef QP_FLOAT
#define QP_FLOAT 0
#endif
#ifndef QP_API
#define QP_API
#endif
#if QP_FLOAT
typedef float QP_REAL;
#define QP_EPS FLT_EPSILON
#define QP_MOST FLT_MAX
#define QP_SQRT sqrtf
#define QP_ABS fabsf
#else
typedef double QP_REAL;
#define QP_EPS DBL_EPSILON
#define QP_MOST DBL_MAX
#define QP_SQRT sqrt
#define QP_ABS fabs
#endif
#define QP_NONE ((QP_REAL)1e20)
#define QP_ROOM ((QP_REAL)1)         /* least slack of a first iterate, in half ranges of limits */
#define QP_BEGIN ((QP_REAL)10)       /* its gap over the cost's size */
#define QP_GIVE (QP_FLOAT ? (QP_REAL)1e-3 : (QP_REAL)1e-4) /* by what equations give way, over it */
#define QP_FLOOR (QP_FLOAT ? (QP_REAL)1e-6 : (QP_REAL)1e-14) /* least gap that is aimed at, over the cost's unit */
#define QP_SHORT ((QP_REAL)0.1)      /* a step that is followed by one to the centre */
#define QP_FRACTION ((QP_REAL)0.999) /* of the way to the nearest limit that a step may go */
#define QP_JOIN_(a, b) a##_##b
#define QP_JOIN(a, b) QP_JOIN_(a, b)
#define QP_(name) QP_JOIN(QP_NAME, name)
#define QP_NZ (QP_NX + QP_NU)
#define QP_PZ ((QP_NZ + 3) / 4 * 4) /* of rows of work */
#define QP_PX ((QP_NX + 3) / 4 * 4)
#define QP_NM (QP_NB + QP_NG)
#define QP_ROWS (QP_N * QP_NM + QP_NE)
#define QP_SOME(n) ((n) > 0 ? (n) : 1)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

typedef struct {
  QP_REAL H[QP_N][QP_NZ][QP_NZ], g[QP_N][QP_NZ], F[QP_N][QP_NX][QP_NZ], c[QP_N][QP_NX];
  QP_REAL H_end[QP_NX][QP_NX], g_end[QP_NX];
  QP_REAL J[QP_N][QP_SOME(QP_NG)][QP_NZ], lower[QP_N][QP_SOME(QP_NM)], upper[QP_N][QP_SOME(QP_NM)];
  QP_REAL J_end[QP_SOME(QP_NE)][QP_NX], lower_end[QP_SOME(QP_NE)], upper_end[QP_SOME(QP_NE)];
  QP_REAL linear[QP_SOME(QP_NM)], square[QP_SOME(QP_NM)];
  QP_REAL linear_end[QP_SOME(QP_NE)], square_end[QP_SOME(QP_NE)];
  int at[QP_SOME(QP_NB)], steps;
} QP_(data);

/* A row: its limits, penalty, and which sides it has (1 lower, 2 upper), or 4 for an equation. */
typedef struct {
  QP_REAL limit[2], linear, square;
  int has;
} QP_(row);

/* One side of a row: slack t >= 0 with multiplier l, exceedance e >= 0 with multiplier v; r is the distance from the
   limit, plus e, less t; give = 1 / (t + l beta), under and beta as in (RH 6), left of the multiplier's price. */
typedef struct {
  QP_REAL t, l, e, v, r, dt, dl, de, dv, give, under, beta, left;
} QP_(side);

typedef struct {
  QP_REAL x[QP_N + 1][QP_NX], u[QP_N][QP_NU], p[QP_N + 1][QP_NX], y[QP_SOME(QP_ROWS)];
  QP_REAL size, apart, left; /* the cost's without inequalities; the others as above */
  int done;
  /* the rest is work */
  QP_REAL K[QP_N][QP_NU][QP_NX], L[QP_N][QP_NU][QP_NU], pushed[QP_N][QP_NX], d[QP_N][QP_NU];
  QP_REAL dx[QP_N + 1][QP_NX], du[QP_N][QP_NU], bent[QP_N][QP_NZ], bent_end[QP_NX], gap[QP_N][QP_NX];
  QP_REAL weight[QP_SOME(QP_ROWS)], slope[QP_SOME(QP_ROWS)], h[QP_SOME(QP_ROWS)], dh[QP_SOME(QP_ROWS)];
  QP_(row) row[QP_SOME(QP_ROWS)];
  QP_(side) side[QP_SOME(QP_ROWS)][2];
  QP_REAL steep, start, give, step, mu, unit;
  int sides;
} QP_(state);

#if QP_NM + QP_NE > 0

/* What rows are of x, u -> h. */
static void QP_(values)(const QP_(data) *d, QP_REAL x[][QP_NX], QP_REAL u[][QP_NU], QP_REAL *h) {
  int k, i, j;
  (void)u;
  for (k = 0; k < d->steps; ++k) {
#if QP_NB > 0
    for (i = 0; i < QP_NB; ++i)
      h[k * QP_NM + i] = d->at[i] < QP_NX ? x[k][d->at[i]] : u[k][d->at[i] - QP_NX];
#endif
#if QP_NG > 0
    for (i = 0; i < QP_NG; ++i) {
      QP_REAL sum = 0;
      for (j = 0; j < QP_NX; ++j) sum += d->J[k][i][j] * x[k][j];
      for (j = 0; j < QP_NU; ++j) sum += d->J[k][i][QP_NX + j] * u[k][j];
      h[k * QP_NM + QP_NB + i] = sum;
    }
#endif
  }
  for (i = 0; i < QP_NE; ++i) {
    QP_REAL sum = 0;
    for (j = 0; j < QP_NX; ++j) sum += d->J_end[i][j] * x[d->steps][j];
    h[d->steps * QP_NM + i] = sum;
  }
  (void)j;
}

#endif

/* -- the linear-quadratic problem ------------------------------------------------------------------------------- */

/* C (rows x cols) +-= A'B, of rows that are QP_PZ apart and padded: blocks of 4 x 8 stay in registers. Of a
   symmetric C, `lower`, blocks above the diagonal are left out. */
#define QP_BLOCK(R, W)                                                                                  \
  {                                                                                                     \
    QP_REAL sum[R][W];                                                                                  \
    for (a = 0; a < (R); ++a)                                                                           \
      for (b = 0; b < (W); ++b) sum[a][b] = 0;                                                          \
    for (k = 0; k < inner; ++k)                                                                         \
      for (a = 0; a < (R); ++a)                                                                         \
        for (b = 0; b < (W); ++b) sum[a][b] += A[k * QP_PZ + i + a] * B[k * QP_PZ + j + b];             \
    for (a = 0; a < (R); ++a)                                                                           \
      for (b = 0; b < (W); ++b) C[(i + a) * QP_PZ + j + b] += sign * sum[a][b];                         \
  }
static inline void QP_(product)(QP_REAL *C, const QP_REAL *A, const QP_REAL *B, const int rows, const int cols,
                                const int inner, const int lower, const QP_REAL sign) {
  int i, j, k, a, b;
  for (i = 0; i + 4 <= rows; i += 4) {
    const int end = lower && i + 4 < cols ? i + 4 : cols;
    for (j = 0; j + 8 <= end; j += 8) QP_BLOCK(4, 8)
    for (; j < end; j += 4) QP_BLOCK(4, 4)
  }
  for (; i < rows; ++i)
    for (j = 0; j < (lower && i + 1 < cols ? i + 1 : cols); j += 4) QP_BLOCK(1, 4)
}

/* (RH 7) backwards: gains and Cholesky factors. 0 where there is no minimum. */
static int QP_(factor)(const QP_(data) *d, QP_(state) *s) {
  QP_REAL P[QP_NX][QP_PZ], T[QP_NX][QP_PZ], H[QP_NZ][QP_PZ], F[QP_NX][QP_PZ], G[QP_NU][QP_PZ], L[QP_NU][QP_NU];
  int i, j, l, stage;
  memset(P, 0, sizeof P);
  memset(F, 0, sizeof F);
  memset(G, 0, sizeof G);
  for (i = 0; i < QP_NX; ++i)
    for (j = 0; j < QP_NX; ++j) P[i][j] = d->H_end[i][j];
#if QP_NE > 0
  for (l = 0; l < QP_NE; ++l) {
    const QP_REAL w = s->weight[d->steps * QP_NM + l];
    for (i = 0; i < QP_NX; ++i)
      for (j = 0; j < QP_NX; ++j) P[i][j] += w * d->J_end[l][i] * d->J_end[l][j];
  }
#endif
  for (stage = d->steps - 1; stage >= 0; --stage) {
    QP_REAL pushed[QP_PZ] = {0};
    for (i = 0; i < QP_NX; ++i)
      for (j = 0; j < QP_NX; ++j) pushed[j] += P[i][j] * s->gap[stage][i];
    memcpy(s->pushed[stage], pushed, sizeof s->pushed[stage]);
    for (i = 0; i < QP_NX; ++i) memcpy(F[i], d->F[stage][i], sizeof d->F[stage][i]);
    for (i = 0; i < QP_NZ; ++i) memcpy(H[i], d->H[stage][i], sizeof d->H[stage][i]);
    memset(T, 0, sizeof T);
    QP_(product)(T[0], P[0], F[0], QP_NX, QP_NZ, QP_NX, 0, 1);
    QP_(product)(H[0], F[0], T[0], QP_NZ, QP_NZ, QP_NX, 1, 1);
#if QP_NB > 0
    for (l = 0; l < QP_NB; ++l) H[d->at[l]][d->at[l]] += s->weight[stage * QP_NM + l];
#endif
#if QP_NG > 0
    for (l = 0; l < QP_NG; ++l) {
      const QP_REAL w = s->weight[stage * QP_NM + QP_NB + l], *a = d->J[stage][l];
      if (w == 0) continue;
      for (i = 0; i < QP_NZ; ++i)
        for (j = 0; j <= i; ++j) H[i][j] += w * a[i] * a[j];
    }
#endif
    for (i = 0; i < QP_NU; ++i) { /* L of H_uu = L L', with the inverse of its diagonal in its place */
      for (j = 0; j <= i; ++j) {
        QP_REAL sum = H[QP_NX + i][QP_NX + j];
        for (l = 0; l < j; ++l) sum -= L[i][l] * L[j][l];
        if (j < i) L[i][j] = sum * L[j][j];
        else if (sum > 0 && sum <= QP_MOST) L[i][i] = 1 / QP_SQRT(sum);
        else return 0;
      }
    }
    memcpy(s->L[stage], L, sizeof L);
    for (i = 0; i < QP_NU; ++i) { /* G = L^-1 H_ux: H_xx - G'G stays symmetric */
      for (j = 0; j < QP_NX; ++j) G[i][j] = H[QP_NX + i][j];
      for (l = 0; l < i; ++l)
        for (j = 0; j < QP_PX; ++j) G[i][j] -= L[i][l] * G[l][j];
      for (j = 0; j < QP_PX; ++j) G[i][j] *= L[i][i];
    }
    for (i = 0; i < QP_NX; ++i)
      for (j = 0; j < QP_NX; ++j) P[i][j] = H[i][j];
    QP_(product)(P[0], G[0], G[0], QP_NX, QP_NX, QP_NU, 1, -1);
    for (i = 0; i < QP_NX; ++i)
      for (j = 0; j < i; ++j) P[j][i] = P[i][j];
    for (i = QP_NU - 1; i >= 0; --i) { /* K = L'^-1 G */
      for (l = i + 1; l < QP_NU; ++l)
        for (j = 0; j < QP_PX; ++j) G[i][j] -= L[l][i] * G[l][j];
      for (j = 0; j < QP_PX; ++j) G[i][j] *= L[i][i];
      memcpy(s->K[stage][i], G[i], sizeof s->K[stage][i]);
    }
  }
  return 1;
}

/* The cost's gradient at s->x, s->u -> s->bent. */
static void QP_(bend)(const QP_(data) *d, QP_(state) *s) {
  int i, j, stage;
  for (stage = 0; stage < d->steps; ++stage)
    for (i = 0; i < QP_NZ; ++i) {
      QP_REAL sum = d->g[stage][i];
      for (j = 0; j < QP_NX; ++j) sum += d->H[stage][i][j] * s->x[stage][j];
      for (j = 0; j < QP_NU; ++j) sum += d->H[stage][i][QP_NX + j] * s->u[stage][j];
      s->bent[stage][i] = sum;
    }
  for (i = 0; i < QP_NX; ++i) {
    QP_REAL sum = d->g_end[i];
    for (j = 0; j < QP_NX; ++j) sum += d->H_end[i][j] * s->x[d->steps][j];
    s->bent_end[i] = sum;
  }
}

/* (RH 8) backwards, then forwards: the step to the minimum, s->dx, s->du, and of the rows, s->dh. */
static void QP_(direction)(const QP_(data) *d, QP_(state) *s, const QP_REAL *x0) {
  QP_REAL p[QP_NX], w[QP_NX], h[QP_NZ];
  int i, j, stage;
  memcpy(p, s->bent_end, sizeof p);
#if QP_NE > 0
  for (j = 0; j < QP_NE; ++j)
    for (i = 0; i < QP_NX; ++i) p[i] += s->slope[d->steps * QP_NM + j] * d->J_end[j][i];
#endif
  for (stage = d->steps - 1; stage >= 0; --stage) {
    const QP_REAL(*F)[QP_NZ] = d->F[stage];
    QP_REAL *to = s->d[stage];
    for (i = 0; i < QP_NX; ++i) w[i] = p[i] + s->pushed[stage][i];
    for (j = 0; j < QP_NZ; ++j) h[j] = s->bent[stage][j];
    for (i = 0; i < QP_NX; ++i)
      for (j = 0; j < QP_NZ; ++j) h[j] += F[i][j] * w[i];
#if QP_NB > 0
    for (i = 0; i < QP_NB; ++i) h[d->at[i]] += s->slope[stage * QP_NM + i];
#endif
#if QP_NG > 0
    for (i = 0; i < QP_NG; ++i)
      for (j = 0; j < QP_NZ; ++j) h[j] += s->slope[stage * QP_NM + QP_NB + i] * d->J[stage][i][j];
#endif
    for (j = 0; j < QP_NX; ++j) p[j] = h[j];
    for (i = 0; i < QP_NU; ++i)
      for (j = 0; j < QP_NX; ++j) p[j] -= s->K[stage][i][j] * h[QP_NX + i];
    for (i = 0; i < QP_NU; ++i) {
      QP_REAL sum = h[QP_NX + i];
      for (j = 0; j < i; ++j) sum -= s->L[stage][i][j] * to[j];
      to[i] = sum * s->L[stage][i][i];
    }
    for (i = QP_NU - 1; i >= 0; --i) {
      QP_REAL sum = to[i];
      for (j = i + 1; j < QP_NU; ++j) sum -= s->L[stage][j][i] * to[j];
      to[i] = sum * s->L[stage][i][i];
    }
  }
  for (i = 0; i < QP_NX; ++i) s->dx[0][i] = x0[i] - s->x[0][i];
  for (stage = 0; stage < d->steps; ++stage) {
    const QP_REAL(*F)[QP_NZ] = d->F[stage], *x = s->dx[stage];
    QP_REAL *u = s->du[stage];
    for (i = 0; i < QP_NU; ++i) {
      QP_REAL sum = -s->d[stage][i];
      for (j = 0; j < QP_NX; ++j) sum -= s->K[stage][i][j] * x[j];
      u[i] = sum;
    }
    for (i = 0; i < QP_NX; ++i) {
      QP_REAL sum = s->gap[stage][i];
      for (j = 0; j < QP_NX; ++j) sum += F[i][j] * x[j];
      for (j = 0; j < QP_NU; ++j) sum += F[i][QP_NX + j] * u[j];
      s->dx[stage + 1][i] = sum;
    }
  }
#if QP_NM + QP_NE > 0
  QP_(values)(d, s->dx, s->du, s->dh);
#endif
}

/* -- the answer ------------------------------------------------------------------------------------------------ */

/* Costates by the adjoint recursion for the multipliers s->y; the largest entry that stationarity by u leaves. */
static QP_REAL QP_(adjoint)(const QP_(data) *d, QP_(state) *s) {
  QP_REAL left = 0, r[QP_NZ];
  int i, j, stage;
  QP_(bend)(d, s);
  memcpy(s->p[d->steps], s->bent_end, sizeof s->p[0]);
#if QP_NE > 0
  for (j = 0; j < QP_NE; ++j)
    for (i = 0; i < QP_NX; ++i) s->p[d->steps][i] += s->y[d->steps * QP_NM + j] * d->J_end[j][i];
#endif
  for (stage = d->steps - 1; stage >= 0; --stage) {
    memcpy(r, s->bent[stage], sizeof r);
    for (i = 0; i < QP_NX; ++i)
      for (j = 0; j < QP_NZ; ++j) r[j] += d->F[stage][i][j] * s->p[stage + 1][i];
#if QP_NB > 0
    for (i = 0; i < QP_NB; ++i) r[d->at[i]] += s->y[stage * QP_NM + i];
#endif
#if QP_NG > 0
    for (i = 0; i < QP_NG; ++i)
      for (j = 0; j < QP_NZ; ++j) r[j] += s->y[stage * QP_NM + QP_NB + i] * d->J[stage][i][j];
#endif
    for (i = 0; i < QP_NX; ++i) s->p[stage][i] = r[i];
    for (i = QP_NX; i < QP_NZ; ++i) left = QP_ABS(r[i]) > left ? QP_ABS(r[i]) : left;
  }
  return left;
}

/* A part of the step of states and inputs. */
static void QP_(advance)(const QP_(data) *d, QP_(state) *s, QP_REAL step) {
  int i, k;
  for (k = 0; k <= d->steps; ++k)
    for (i = 0; i < QP_NX; ++i) s->x[k][i] += step * s->dx[k][i];
  for (k = 0; k < d->steps; ++k) {
    for (i = 0; i < QP_NU; ++i) s->u[k][i] += step * s->du[k][i];
    for (i = 0; i < QP_NX; ++i) s->gap[k][i] *= 1 - step;
  }
}
