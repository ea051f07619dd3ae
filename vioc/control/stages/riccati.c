/* A stage of the Riccati recursion, x+ = F z + c of z = (x, u), for chain.c and the quadratic programs of receding
   horizons. Nothing is allocated; sizes that are constants of the caller are constants here. Macros defined before this
   text select what it is compiled for:

     STAGE_(name)  the names of all functions        STAGE_REAL, STAGE_SQRT, STAGE_MOST  numbers, their root, the largest

   Rows of padded matrices are `wide` apart, n + m or more and a multiple of four; all others are without gaps. */

#if defined(__GNUC__)
#define STAGE_INLINE static inline __attribute__((always_inline))
#else
#define STAGE_INLINE static inline
#endif

/* C (rows x cols) +-= A'B, all padded, in blocks of 4 x 8 that stay in registers. If C is symmetric (`lower`), blocks
   above the diagonal are left out. */
#define STAGE_BLOCK(R, W)                                                                               \
  {                                                                                                     \
    STAGE_REAL sum[R][W];                                                                               \
    for (a = 0; a < (R); ++a)                                                                           \
      for (b = 0; b < (W); ++b) sum[a][b] = 0;                                                          \
    for (k = 0; k < inner; ++k)                                                                         \
      for (a = 0; a < (R); ++a)                                                                         \
        for (b = 0; b < (W); ++b) sum[a][b] += A[k * wide + i + a] * B[k * wide + j + b];               \
    for (a = 0; a < (R); ++a)                                                                           \
      for (b = 0; b < (W); ++b) C[(i + a) * wide + j + b] += sign * sum[a][b];                          \
  }
STAGE_INLINE void STAGE_(product)(STAGE_REAL *C, const STAGE_REAL *A, const STAGE_REAL *B, const int wide,
                                  const int rows, const int cols, const int inner, const int lower,
                                  const STAGE_REAL sign) {
  int i, j, k, a, b;
  for (i = 0; i + 4 <= rows; i += 4) {
    const int end = lower && i + 4 < cols ? i + 4 : cols;
    for (j = 0; j + 8 <= end; j += 8) STAGE_BLOCK(4, 8)
    for (; j < end; j += 4) STAGE_BLOCK(4, 4)
  }
  for (; i < rows; ++i)
    for (j = 0; j < (lower && i + 1 < cols ? i + 1 : cols); j += 4) STAGE_BLOCK(1, 4)
}

/* Back over a stage: T (n) of the cost to go behind it, 1/2 x'T x, and F (n) and H (n + m, its lower half), padded, ->
   P (n) of the one before it, padded, and of u = -K x - d: K (m x n), and L (m x m) of the Hessian by u, L L', whose
   diagonal is inverted. W (n) and G (m) are workspace, padded, and H is overwritten; P may be T. Returns 0
   if there is no minimum. */
STAGE_INLINE int STAGE_(back)(const int n, const int m, const int wide, const STAGE_REAL *T, const STAGE_REAL *F,
                              STAGE_REAL *H, STAGE_REAL *W, STAGE_REAL *G, STAGE_REAL *P, STAGE_REAL *K,
                              STAGE_REAL *L) {
  const int near = (n + 3) / 4 * 4;
  int i, j, l;
  memset(W, 0, (size_t)(n * wide) * sizeof *W);
  STAGE_(product)(W, T, F, wide, n, n + m, n, 0, 1);
  STAGE_(product)(H, F, W, wide, n + m, n + m, n, 1, 1);
  for (i = 0; i < m; ++i)
    for (j = 0; j <= i; ++j) {
      STAGE_REAL sum = H[(n + i) * wide + n + j];
      for (l = 0; l < j; ++l) sum -= L[i * m + l] * L[j * m + l];
      if (j < i) L[i * m + j] = sum * L[j * m + j];
      else if (sum > 0 && sum <= STAGE_MOST) L[i * m + i] = 1 / STAGE_SQRT(sum);
      else return 0;
    }
  for (i = 0; i < m; ++i) { /* G = L^-1 H_ux: H_xx - G'G stays symmetric */
    STAGE_REAL *g = G + i * wide;
    for (j = 0; j < near; ++j) g[j] = H[(n + i) * wide + j];
    for (l = 0; l < i; ++l)
      for (j = 0; j < near; ++j) g[j] -= L[i * m + l] * G[l * wide + j];
    for (j = 0; j < near; ++j) g[j] *= L[i * m + i];
  }
  for (i = 0; i < n; ++i)
    for (j = 0; j < n; ++j) P[i * wide + j] = H[i * wide + j];
  STAGE_(product)(P, G, G, wide, n, n, m, 1, -1);
  for (i = 0; i < n; ++i)
    for (j = 0; j < i; ++j) P[j * wide + i] = P[i * wide + j];
  for (i = m - 1; i >= 0; --i) { /* K = L'^-1 G */
    STAGE_REAL *g = G + i * wide;
    for (l = i + 1; l < m; ++l)
      for (j = 0; j < near; ++j) g[j] -= L[l * m + i] * G[l * wide + j];
    for (j = 0; j < near; ++j) g[j] *= L[i * m + i];
    memcpy(K + i * n, g, (size_t)n * sizeof *g);
  }
  return 1;
}

/* Same for linear terms: w (n) of the cost to go of F z, h (n + m) of the stage's cost -> p (n) of the stage before it,
   and d (m); h is overwritten. */
STAGE_INLINE void STAGE_(linear)(const int n, const int m, const STAGE_REAL *F, const STAGE_REAL *K,
                                 const STAGE_REAL *L, const STAGE_REAL *w, STAGE_REAL *h, STAGE_REAL *p,
                                 STAGE_REAL *d) {
  const int q = n + m;
  int i, j;
  for (i = 0; i < n; ++i)
    for (j = 0; j < q; ++j) h[j] += F[i * q + j] * w[i];
  for (j = 0; j < n; ++j) p[j] = h[j];
  for (i = 0; i < m; ++i)
    for (j = 0; j < n; ++j) p[j] -= K[i * n + j] * h[n + i];
  for (i = 0; i < m; ++i) {
    STAGE_REAL sum = h[n + i];
    for (j = 0; j < i; ++j) sum -= L[i * m + j] * d[j];
    d[i] = sum * L[i * m + i];
  }
  for (i = m - 1; i >= 0; --i) {
    STAGE_REAL sum = d[i];
    for (j = i + 1; j < m; ++j) sum -= L[j * m + i] * d[j];
    d[i] = sum * L[i * m + i];
  }
}

/* Forth over a stage: u = -K x - d, and what follows, F (x, u) + c. */
STAGE_INLINE void STAGE_(forth)(const int n, const int m, const STAGE_REAL *F, const STAGE_REAL *K,
                                const STAGE_REAL *d, const STAGE_REAL *c, const STAGE_REAL *x, STAGE_REAL *u,
                                STAGE_REAL *next) {
  const int q = n + m;
  int i, j;
  for (i = 0; i < m; ++i) {
    STAGE_REAL sum = -d[i];
    for (j = 0; j < n; ++j) sum -= K[i * n + j] * x[j];
    u[i] = sum;
  }
  for (i = 0; i < n; ++i) {
    STAGE_REAL sum = c[i];
    for (j = 0; j < n; ++j) sum += F[i * q + j] * x[j];
    for (j = 0; j < m; ++j) sum += F[i * q + n + j] * u[j];
    next[i] = sum;
  }
}
