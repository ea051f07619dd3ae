/* Quadratic program of stages: interior-point method with a Riccati recursion; docs/maths/receding.md.

     minimize  sum over k < N of 1/2 z_k'H_k z_k + g_k'z_k  +  1/2 x_N'H_end x_N + g_end'x_N,   z_k = (x_k, u_k),
     x_k+1 = F_k z_k + c_k,   x_0 given,   lower_k <= rows_k(z_k) <= upper_k,   lower_end <= J_end x_N <= upper_end.

   The rows of a stage are QP_NB entries of z, `at`, then QP_NG general ones, J z. A limit exists if its size is below
   QP_NONE; equal limits make an equation. A row r with linear[r] >= 0 is soft: an exceedance e of a limit costs
   linear[r] e + 1/2 square[r] e^2, square[r] > 0.

   Written by hand, also for a controller's hardware: the program without its states, solved by an active-set method
   (condensed.py), takes 11 times as long for 40 steps of a cart-pole, 8 times for 30 of an arm with seven joints.

   Macros defined before this text select what it is compiled for:
     QP_NAME    prefix of all names           QP_N           most steps; `data.steps` of them are solved
     QP_NX, QP_NU  states, inputs             QP_NB, QP_NG, QP_NE  bounds and general rows of a stage, rows at the end
     QP_SOFT    1 where rows may be soft      QP_FLOAT       1 for single precision
     QP_API     storage class of functions, such as `static`; nothing by default

   The caller provides NAME_data and keeps NAME_state; both may be static and zero at first. Nothing is allocated.
     int NAME_solve(const NAME_data *d, NAME_state *s, const real *x0, int iterations, real tolerance, int warm)
   With tolerance 0, exactly `iterations` are done. `warm` starts from the iterate in `s`. It returns
     0  solved to the tolerance, or all iterations done if that is 0
     1  tolerance not reached within the iterations
     2  no minimum: a stage's Hessian by u is not positive definite in the recursion
     3  not finite
   s->x, s->u are the solution, s->y (stages, then end) the multipliers of rows, >= 0 at upper limits, s->p costates,
   s->done the iterations, s->apart the gap over the cost's unit (RH 9), s->left the residual of rows relative to the
   first iterate's. */

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
#define QP_ROOM ((QP_REAL)1)         /* smallest slack of the first iterate, in half ranges of limits */
#define QP_BEGIN ((QP_REAL)10)       /* gap of the first iterate over the cost's size */
#define QP_GIVE (QP_FLOAT ? (QP_REAL)1e-3 : (QP_REAL)1e-4) /* softening of equations, over s->steep */
#define QP_FLOOR (QP_FLOAT ? (QP_REAL)1e-6 : (QP_REAL)1e-14) /* smallest target of the gap, over the cost's unit */
#define QP_SHORT ((QP_REAL)0.1)      /* length below which a step to the centre follows */
#define QP_FRACTION ((QP_REAL)0.999) /* largest part of the way to the nearest limit in a step */
#define QP_JOIN_(a, b) a##_##b
#define QP_JOIN(a, b) QP_JOIN_(a, b)
#define QP_(name) QP_JOIN(QP_NAME, name)
#define QP_NZ (QP_NX + QP_NU)
#define QP_PZ ((QP_NZ + 3) / 4 * 4) /* of rows of work */
#define STAGE_(name) QP_(name) /* what riccati.c is compiled for */
#define STAGE_REAL QP_REAL
#define STAGE_SQRT QP_SQRT
#define STAGE_MOST QP_MOST
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

/* A row: limits, penalty, and existing sides (1 lower, 2 upper), or 4 for an equation. */
typedef struct {
  QP_REAL limit[2], linear, square;
  int has;
} QP_(row);

/* One side of a row: slack t >= 0 with multiplier l, exceedance e >= 0 with multiplier v; r is the distance from the
   limit plus e minus t; give = 1 / (t + l beta), under and beta are as in (RH 6), left is the residual of the price. */
typedef struct {
  QP_REAL t, l, e, v, r, dt, dl, de, dv, give, under, beta, left;
} QP_(side);

typedef struct {
  QP_REAL x[QP_N + 1][QP_NX], u[QP_N][QP_NU], p[QP_N + 1][QP_NX], y[QP_SOME(QP_ROWS)];
  QP_REAL size, apart, left; /* the cost's without inequalities; the others as above */
  int done;
  /* the rest is workspace */
  QP_REAL K[QP_N][QP_NU][QP_NX], L[QP_N][QP_NU][QP_NU], pushed[QP_N][QP_NX], d[QP_N][QP_NU];
  QP_REAL dx[QP_N + 1][QP_NX], du[QP_N][QP_NU], bent[QP_N][QP_NZ], bent_end[QP_NX], gap[QP_N][QP_NX];
  QP_REAL weight[QP_SOME(QP_ROWS)], slope[QP_SOME(QP_ROWS)], h[QP_SOME(QP_ROWS)], dh[QP_SOME(QP_ROWS)];
  QP_(row) row[QP_SOME(QP_ROWS)];
  QP_(side) side[QP_SOME(QP_ROWS)][2];
  QP_REAL steep, start, give, step, mu, unit;
  int sides;
} QP_(state);
