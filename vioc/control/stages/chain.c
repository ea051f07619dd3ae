/* Recursion of riccati.c along a chain of stages with elastic dynamics, as in `recursion.py`; matrices row by row.

   factor: T, K and the Cholesky factors of every stage, backwards; backward, forward: a step for given linear terms.
   The first e states are elastic if soft > 0. In C, like subproblem.c, because a search with numpy and LAPACK for both
   takes 3.4 times as long for the cart-pole of the benchmarks, 1.7 times for the 7-DOF arm. */

#include <float.h>
#include <math.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

typedef long long Long;

#define STAGE_(name) stage_##name
#define STAGE_REAL double
#define STAGE_SQRT sqrt
#define STAGE_MOST DBL_MAX
enum { WIDEST = 48 }; /* states and inputs of a stage: SMALL of recursion.py */

#include "riccati.c"

/* T = P (I + D P)^-1, with D = soft for the first e states and 0 for the others, from the Cholesky factor, in A, of
   I + soft P of the elastic states; P padded. Returns 0 if that is not positive definite. */
static int soften(int n, int e, int wide, double soft, const double *restrict P, double *restrict T, double *restrict A) {
  int i, j, k;
  for (i = 0; i < e; ++i)
    for (j = 0; j <= i; ++j) {
      double s = (i == j) + soft * P[i * wide + j];
      for (k = 0; k < j; ++k) s -= A[i * n + k] * A[j * n + k];
      if (i > j) A[i * n + j] = s / A[j * n + j];
      else if (s > 0 && isfinite(s)) A[i * n + i] = sqrt(s);
      else return 0;
    }
  for (i = 0; i < n; ++i) memcpy(T + i * n, P + i * wide, (size_t)n * sizeof *T);
  for (i = 0; i < e; ++i) {
    for (k = 0; k < i; ++k) {
      const double a = A[i * n + k];
      for (j = 0; j < n; ++j) T[i * n + j] -= a * T[k * n + j];
    }
    for (j = 0; j < n; ++j) T[i * n + j] /= A[i * n + i];
  }
  for (i = e - 1; i >= 0; --i) {
    for (k = i + 1; k < e; ++k) {
      const double a = A[k * n + i];
      for (j = 0; j < n; ++j) T[i * n + j] -= a * T[k * n + j];
    }
    for (j = 0; j < n; ++j) T[i * n + j] /= A[i * n + i];
  }
  for (i = e; i < n; ++i) /* rigid states: P minus the compliance of the elastic states */
    for (j = 0; j < n; ++j) {
      double s = 0;
      if (j < e) T[i * n + j] = T[j * n + i];
      else {
        for (k = 0; k < e; ++k) s += P[i * wide + k] * T[k * n + j];
        T[i * n + j] -= soft * s;
      }
    }
  return 1;
}

/* F (N, n, q), M (N, q, q), last (n, n) -> T (N, n, n), P of the first stage (n, n), K (N, m, n), L (N, m, m). Returns the
   stage without a minimum, or -1. */
PUBLIC Long vioc_chain_factor(Long N, Long n, Long q, Long e, double soft, const double *F, const double *M,
                              const double *last, double *T, double *p, double *K, double *L) {
  double P[WIDEST * WIDEST], S[WIDEST * WIDEST], f[WIDEST * WIDEST], H[WIDEST * WIDEST];
  double W[WIDEST * WIDEST], G[WIDEST * WIDEST];
  const int m = (int)(q - n), wide = (int)(q + 3) / 4 * 4;
  double *const padded[] = {P, S, f, H};
  Long i, stage;
  for (i = 0; i < 4; ++i) memset(padded[i], 0, q * wide * sizeof **padded);
  for (i = 0; i < n; ++i) memcpy(P + i * wide, last + i * n, n * sizeof *P);
  for (stage = N - 1; stage >= 0; --stage) {
    double *t = T + stage * n * n, *behind = P;
    if (soft == 0)
      for (i = 0; i < n; ++i) memcpy(t + i * n, P + i * wide, n * sizeof *t);
    else {
      if (!soften((int)n, (int)e, wide, soft, P, t, W)) return stage;
      for (i = 0; i < n; ++i) memcpy(S + i * wide, t + i * n, n * sizeof *S);
      behind = S;
    }
    for (i = 0; i < n; ++i) memcpy(f + i * wide, F + (stage * n + i) * q, q * sizeof *f);
    for (i = 0; i < q; ++i) memcpy(H + i * wide, M + (stage * q + i) * q, q * sizeof *H);
    if (!STAGE_(back)((int)n, m, wide, behind, f, H, W, G, P, K + stage * m * n, L + stage * m * m)) return stage;
  }
  for (i = 0; i < n; ++i) memcpy(p + i * n, P + i * wide, n * sizeof *p);
  return -1;
}

/* Backwards: g (N, q), end (n), gap (N, n) -> s (N, n) after softening, that of the first stage s0 (n), d (N, m). */
PUBLIC void vioc_chain_backward(Long N, Long n, Long q, Long e, double soft, const double *F, const double *T,
                                const double *K, const double *L, const double *g, const double *end,
                                const double *gap, double *s, double *s0, double *d) {
  const Long m = q - n;
  double w[WIDEST], h[WIDEST];
  Long i, j, stage;
  memcpy(s0, end, n * sizeof *s0);
  for (stage = N - 1; stage >= 0; --stage) {
    const double *t = T + stage * n * n, *z = gap + stage * n;
    double *si = s + stage * n;
    for (i = 0; i < n; ++i) {
      double own = s0[i], sum = 0;
      for (j = 0; j < e; ++j) own -= soft * t[i * n + j] * s0[j];
      for (j = 0; j < n; ++j) sum += t[i * n + j] * z[j];
      si[i] = own;
      w[i] = own + sum;
    }
    memcpy(h, g + stage * q, q * sizeof *h);
    STAGE_(linear)((int)n, (int)m, F + stage * n * q, K + stage * m * n, L + stage * m * m, w, h, s0, d + stage * m);
  }
}

/* Forwards from x[0]: x (N+1, n), u (N, m), and the costates p (N, n) of the steps. */
PUBLIC void vioc_chain_forward(Long N, Long n, Long q, Long e, double soft, const double *F, const double *T,
                               const double *K, const double *s, const double *d, const double *gap, double *x,
                               double *u, double *p) {
  const Long m = q - n;
  Long i, j, stage;
  for (stage = 0; stage < N; ++stage) {
    const double *t = T + stage * n * n;
    double *there = x + (stage + 1) * n, *pi = p + stage * n;
    STAGE_(forth)((int)n, (int)m, F + stage * n * q, K + stage * m * n, d + stage * m, gap + stage * n, x + stage * n,
                  u + stage * m, there);
    for (i = 0; i < n; ++i) {
      double sum = s[stage * n + i];
      for (j = 0; j < n; ++j) sum += t[i * n + j] * there[j];
      pi[i] = sum;
    }
    for (i = 0; i < e; ++i) there[i] -= soft * pi[i];
  }
}
