/* The linear-quadratic problem of a chain of stages, as `lq.py` writes it; matrices row by row.

   factor: P, K and the Cholesky factors of every stage, backwards; solve: a step for given linear terms. The first
   e states are elastic where soft > 0. In C, as level.c: a search that has numpy and LAPACK for both takes 3.4 times as long
   for the cart-pole of the benchmarks, 1.7 times for the 7-DOF arm. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

typedef long long Long;

/* C (rows x cols) += A' B or A B, where a(i, k) = A[i * si + k * sk]: rows of B are added to rows of C. */
static void add_product(double *restrict C, const double *restrict A, Long si, Long sk, const double *restrict B,
                        Long rows, Long inner, Long cols, Long lower) {
  Long i, j, k;
  for (i = 0; i < rows; ++i) {
    double *restrict c = C + i * cols;
    const double *a = A + i * si;
    const Long end = lower ? i + 1 : cols;
    for (k = 0; k + 4 <= inner; k += 4) {
      const double a0 = a[k * sk], a1 = a[(k + 1) * sk], a2 = a[(k + 2) * sk], a3 = a[(k + 3) * sk];
      const double *restrict b0 = B + k * cols, *restrict b1 = b0 + cols, *restrict b2 = b1 + cols,
                             *restrict b3 = b2 + cols;
      for (j = 0; j < end; ++j) c[j] += (a0 * b0[j] + a1 * b1[j]) + (a2 * b2[j] + a3 * b3[j]);
    }
    for (; k < inner; ++k) {
      const double a0 = a[k * sk];
      const double *restrict b0 = B + k * cols;
      for (j = 0; j < end; ++j) c[j] += a0 * b0[j];
    }
  }
}

/* T = P (I + D P)^-1, D = soft for the first e states and 0 for the others: by the Cholesky factor, in A, of
   I + soft P of the former; 0 where that is not positive definite. */
static int soften(Long n, Long e, double soft, const double *restrict P, double *restrict T, double *restrict A) {
  Long i, j, k;
  for (i = 0; i < e; ++i)
    for (j = 0; j <= i; ++j) {
      double s = (i == j) + soft * P[i * n + j];
      for (k = 0; k < j; ++k) s -= A[i * n + k] * A[j * n + k];
      if (i > j) A[i * n + j] = s / A[j * n + j];
      else if (s > 0 && isfinite(s)) A[i * n + i] = sqrt(s);
      else return 0;
    }
  memcpy(T, P, n * n * sizeof *T);
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
  for (i = e; i < n; ++i) /* what is rigid: P less what the elastic states give way */
    for (j = 0; j < n; ++j) {
      double s = 0;
      if (j < e) T[i * n + j] = T[j * n + i];
      else {
        for (k = 0; k < e; ++k) s += P[i * n + k] * T[k * n + j];
        T[i * n + j] -= soft * s;
      }
    }
  return 1;
}

/* F (N, n, q), M (N, q, q), last (n, n) -> T (N, n, n), P of the first stage (n, n), K (N, m, n), L (N, m, m)
   lower. The stage at which there is no minimum, or -1; -2 without memory. */
PUBLIC Long vioc_lq_factor(Long N, Long n, Long q, Long e, double soft, const double *F, const double *M,
                           const double *last, double *T, double *p, double *K, double *L) {
  const Long m = q - n;
  double *W = malloc((n * q + q * q + n * n + 1) * sizeof *W), *H = W + n * q, *A = H + q * q;
  Long i, j, k, l, stage;
  if (!W) return -2;
  memcpy(p, last, n * n * sizeof *p);
  for (stage = N - 1; stage >= 0; --stage) {
    const double *f = F + stage * n * q;
    double *t = T + stage * n * n, *gain = K + stage * m * n, *low = L + stage * m * m;
    if (soft == 0) memcpy(t, p, n * n * sizeof *t);
    else if (!soften(n, e, soft, p, t, A)) { free(W); return stage; }
    memset(W, 0, n * q * sizeof *W);
    add_product(W, t, n, 1, f, n, n, q, 0);
    memcpy(H, M + stage * q * q, q * q * sizeof *H);
    add_product(H, f, 1, q, W, q, n, q, 1); /* its lower half: all of the rows of u */
    for (i = 0; i < m; ++i) {
      for (j = 0; j <= i; ++j) {
        double s = H[(n + i) * q + n + j];
        for (l = 0; l < j; ++l) s -= low[i * m + l] * low[j * m + l];
        if (i > j) low[i * m + j] = s / low[j * m + j];
        else if (s > 0 && isfinite(s)) low[i * m + i] = sqrt(s);
        else { free(W); return stage; }
      }
      for (j = i + 1; j < m; ++j) low[i * m + j] = 0;
    }
    /* gain = L^-1 H_ux first: P = H_xx - gain' gain stays symmetric */
    for (i = 0; i < m; ++i) {
      double *restrict g = gain + i * n;
      for (j = 0; j < n; ++j) g[j] = H[(n + i) * q + j];
      for (l = 0; l < i; ++l) {
        const double a = low[i * m + l];
        const double *restrict o = gain + l * n;
        for (j = 0; j < n; ++j) g[j] -= a * o[j];
      }
      for (j = 0; j < n; ++j) g[j] /= low[i * m + i];
    }
    for (i = 0; i < n; ++i) {
      double *restrict r = p + i * n; /* the cost to go before this stage */
      for (j = 0; j <= i; ++j) r[j] = H[i * q + j];
      for (k = 0; k < m; ++k) {
        const double a = gain[k * n + i];
        const double *restrict g = gain + k * n;
        for (j = 0; j <= i; ++j) r[j] -= a * g[j];
      }
    }
    for (i = 0; i < n; ++i)
      for (j = 0; j < i; ++j) p[j * n + i] = p[i * n + j];
    for (i = m - 1; i >= 0; --i) { /* K = L'^-1 of it */
      double *restrict g = gain + i * n;
      for (l = i + 1; l < m; ++l) {
        const double a = low[l * m + i];
        const double *restrict o = gain + l * n;
        for (j = 0; j < n; ++j) g[j] -= a * o[j];
      }
      for (j = 0; j < n; ++j) g[j] /= low[i * m + i];
    }
  }
  free(W);
  return -1;
}

/* Backwards: g (N, q), end (n), gap (N, n) -> s (N, n) after softening, that of the first stage s0 (n), d (N, m). */
PUBLIC void vioc_lq_backward(Long N, Long n, Long q, Long e, double soft, const double *F, const double *T,
                             const double *K, const double *L, const double *g, const double *end, const double *gap, double *s,
                             double *s0, double *d) {
  const Long m = q - n;
  double *w = malloc((n + q + 1) * sizeof *w), *h = w + n;
  Long i, j, stage;
  memcpy(s0, end, n * sizeof *s0);
  for (stage = N - 1; stage >= 0; --stage) {
    const double *f = F + stage * n * q, *gain = K + stage * m * n, *low = L + stage * m * m;
    const double *t = T + stage * n * n, *z = gap + stage * n;
    double *di = d + stage * m, *si = s + stage * n;
    for (i = 0; i < n; ++i) {
      double own = s0[i], sum = 0;
      for (j = 0; j < e; ++j) own -= soft * t[i * n + j] * s0[j];
      for (j = 0; j < n; ++j) sum += t[i * n + j] * z[j];
      si[i] = own;
      w[i] = own + sum;
    }
    memcpy(h, g + stage * q, q * sizeof *h);
    for (i = 0; i < n; ++i)
      for (j = 0; j < q; ++j) h[j] += f[i * q + j] * w[i];
    memcpy(s0, h, n * sizeof *s0);
    for (i = 0; i < m; ++i)
      for (j = 0; j < n; ++j) s0[j] -= gain[i * n + j] * h[n + i];
    for (i = 0; i < m; ++i) {
      double sum = h[n + i];
      for (j = 0; j < i; ++j) sum -= low[i * m + j] * di[j];
      di[i] = sum / low[i * m + i];
    }
    for (i = m - 1; i >= 0; --i) {
      double sum = di[i];
      for (j = i + 1; j < m; ++j) sum -= low[j * m + i] * di[j];
      di[i] = sum / low[i * m + i];
    }
  }
  free(w);
}

/* Forwards from x[0]: x (N+1, n), u (N, m), and the costates p (N, n) of the steps. */
PUBLIC void vioc_lq_forward(Long N, Long n, Long q, Long e, double soft, const double *F, const double *T,
                            const double *K, const double *s, const double *d, const double *gap, double *x, double *u, double *p) {
  const Long m = q - n;
  Long i, j, stage;
  for (stage = 0; stage < N; ++stage) {
    const double *here = x + stage * n, *f = F + stage * n * q, *t = T + stage * n * n;
    double *there = x + (stage + 1) * n, *pi = p + stage * n;
    for (i = 0; i < m; ++i) {
      double sum = -d[stage * m + i];
      for (j = 0; j < n; ++j) sum -= K[(stage * m + i) * n + j] * here[j];
      u[stage * m + i] = sum;
    }
    for (i = 0; i < n; ++i) {
      double sum = gap[stage * n + i];
      for (j = 0; j < n; ++j) sum += f[i * q + j] * here[j];
      for (j = 0; j < m; ++j) sum += f[i * q + n + j] * u[stage * m + j];
      there[i] = sum;
    }
    for (i = 0; i < n; ++i) {
      double sum = s[stage * n + i];
      for (j = 0; j < n; ++j) sum += t[i * n + j] * there[j];
      pi[i] = sum;
    }
    for (i = 0; i < e; ++i) there[i] -= soft * pi[i];
  }
}
