/* Derivatives of midpoint steps without constraints and kinematic variables, from the thin factors of their blocks:
   what `StructuredLinearization` does with numpy, a step at a time, in the processor's cache.

   Written by hand: numpy takes 1.9 to 2.3 times the time for A and B of 5 to 40 links, 1.8 to 3.5 times for second
   derivatives (1.4 and 1.3 times of one link), of 200 steps on one core. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC optimize("fp-contract=fast") /* no bits are promised of products that BLAS makes elsewhere */

#define WIDE 8
typedef double wide __attribute__((vector_size(WIDE * sizeof(double))));
typedef long long number;

typedef struct {
  number n, rank, inputs;
  const double *mask;      /* (n, n): 1 where the row is an ancestor of the column, or the same */
  const double *mass;      /* (n,): a typical diagonal of M */
  const double *rotors;    /* (n,), or NULL */
  const number *at;        /* (inputs,): the variable that each force is on */
  const double *gain;      /* (inputs,) */
} mechanism;

#ifdef __AVX512F__
#define TILE 5 /* vectors of a row that are summed in registers, for four rows */
#else
#define TILE 1
#endif

#pragma GCC push_options
#pragma GCC optimize("O3", "fp-contract=fast")
/* Four rows of C + A B, or where not to `add` A B, `of` columns of A; from row to row are b and c vectors, and a
   numbers of A, whose columns are `on` apart. */
static inline __attribute__((always_inline)) void tile(int add, int tiles, number of, const double *A, number a,
                                                       number on, const wide *B, number b, wide *C, number c) {
  wide sum[4][TILE];
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < tiles; j++) sum[i][j] = add ? C[i * c + j] : (wide){0};
  for (number k = 0; k < of; k++)
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < tiles; j++) sum[i][j] += A[i * a + k * on] * B[k * b + j];
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < tiles; j++) C[i * c + j] = sum[i][j];
}

static void four_rows(int add, number width, number of, const double *A, number a, number on, const wide *B, number b,
                      wide *C, number c) {
  for (number j = 0; j < width; j += TILE) {
    switch (width - j < TILE ? width - j : TILE) {
      case 1: tile(add, 1, of, A, a, on, B + j, b, C + j, c); break;
#if TILE > 1
      case 2: tile(add, 2, of, A, a, on, B + j, b, C + j, c); break;
      case 3: tile(add, 3, of, A, a, on, B + j, b, C + j, c); break;
      case 4: tile(add, 4, of, A, a, on, B + j, b, C + j, c); break;
      case 5: tile(add, 5, of, A, a, on, B + j, b, C + j, c); break;
#endif
    }
  }
}

#pragma GCC pop_options

/* C (rows, width) + A (rows, of) B (of, width); rows in fours, which C has room for. */
static void product(int add, number rows, number width, number of, const double *A, number a, const wide *B, number b,
                    wide *C, number c) {
  for (number i = 0; i < rows; i += 4) four_rows(add, width, of, A + i * a, a, 1, B, b, C + i * c, c);
}

/* A' B of A (of, rows). */
static void across(number rows, number width, number of, const double *A, number a, const wide *B, number b, wide *C,
                   number c) {
  for (number i = 0; i < rows; i += 4) four_rows(0, width, of, A + i, 1, a, B, b, C + i * c, c);
}

#define IN(M, w, i, j) (((double *)((M) + (i) * (w)))[j])

/* Y <- M^-1 Y (n, 2 width) by LU with pivots; M is lost. */
static void solve(number n, number width, wide *M, wide *Y, wide *kept) {
  const number s = width * WIDE, both = 2 * width;
  for (number k = 0; k < n; k++) { /* below the diagonal -L */
    number p = k;
    for (number i = k + 1; i < n; i++)
      if (fabs(IN(M, width, i, k)) > fabs(IN(M, width, p, k))) p = i;
    if (p != k) {
      for (number j = 0; j < width; j++) {
        const wide other = M[p * width + j];
        M[p * width + j] = M[k * width + j], M[k * width + j] = other;
      }
      for (number j = 0; j < both; j++) {
        const wide other = Y[p * both + j];
        Y[p * both + j] = Y[k * both + j], Y[k * both + j] = other;
      }
    }
    const number from = k / WIDE;
    for (number j = from; j < width; j++) kept[j] = M[k * width + j];
    for (number j = from * WIDE; j <= k; j++) IN(kept, width, 0, j) = 0;
    const double inverse = -1 / IN(M, width, k, k);
    for (number i = k + 1; i < n; i++) {
      const double by = IN(M, width, i, k) * inverse;
      wide *to = M + i * width;
      for (number j = from; j < width; j++) to[j] += by * kept[j];
      IN(M, width, i, k) = by;
    }
  }
  const double *m = (double *)M;
  for (number b = 0; b < n; b += 4) {
    four_rows(1, both, b, m + b * s, s, 1, Y, both, Y + b * both, both);
    for (number i = b + 1; i < b + 4 && i < n; i++)
      for (number k = b; k < i; k++)
        for (number j = 0; j < both; j++) Y[i * both + j] += m[i * s + k] * Y[k * both + j];
  }
  for (number i = 0; i < n; i++) { /* above it -U over the diagonal */
    const double inverse = 1 / m[i * s + i];
    for (number j = 0; j < both; j++) Y[i * both + j] *= inverse;
    for (number k = i + 1; k < n; k++) IN(M, width, i, k) *= -inverse;
  }
  for (number b = (n - 1) / 4 * 4; b >= 0; b -= 4) {
    if (b + 4 < n) four_rows(1, both, n - b - 4, m + b * s + b + 4, s, 1, Y + (b + 4) * both, both, Y + b * both, both);
    for (number i = (b + 4 < n ? b + 4 : n) - 2; i >= b; i--)
      for (number k = i + 1; k < b + 4 && k < n; k++)
        for (number j = 0; j < both; j++) Y[i * both + j] += m[i * s + k] * Y[k * both + j];
  }
}

/* D1 D2, D1 D1 and D2 D2 (rows, width) from their factors: masked, and what is below the diagonal from above it. */
static void blocks(const mechanism *m, const double *left, const double *right, wide *W, double *thin, wide *turned,
                   wide *D12, wide *D11, wide *D22) {
  const number n = m->n, width = (n + WIDE - 1) / WIDE, s = width * WIDE, rows = (n + 3) / 4 * 4, rank = m->rank;
  memcpy(thin, left, n * rank * sizeof *thin);
  for (number b = 0; b < 4; b++)
    for (number j = 0; j < n; j++)
      for (number k = 0; k < rank; k++) IN(turned, 4 * width, k, b * s + j) = right[(b * n + j) * rank + k];
  product(0, n, 4 * width, rank, thin, rank, turned, 4 * width, W, 4 * width);
  for (number i = 0; i < n; i++)
    for (number j = i; j < n; j++) {
      const number a = m->mask[j * n + i] ? j : i, b = a == i ? j : i;
      const double on = m->mask[a * n + b], *found = &IN(W, 4 * width, a, b);
      IN(D12, width, b, a) = on * found[s];
      IN(D12, width, a, b) = on * found[0];
      IN(D11, width, i, j) = IN(D11, width, j, i) = on * found[2 * s];
      IN(D22, width, i, j) = IN(D22, width, j, i) = on * found[3 * s];
    }
}

/* Columns by inputs (rows, inputs) of those by p_k (rows, n): a force acts as what is added to p_k. */
static void forced(const mechanism *m, number rows, double share, const double *by_p, number apart, double *to) {
  const number nu = m->inputs;
  number row = nu ? m->at[0] : 0; /* where forces are on one variable after the other, the first of these */
  for (number j = 0; j < nu; j++)
    if (m->at[j] != m->at[0] + j) row = -1;
  for (number i = 0; i < rows; i++, by_p += apart, to += nu)
    if (row < 0)
      for (number j = 0; j < nu; j++) to[j] = share * m->gain[j] * by_p[m->at[j]];
    else
      for (number j = 0; j < nu; j++) to[j] = share * m->gain[j] * by_p[row + j];
}

/* `count` steps of lengths h. left (n, rank), right (4 n, rank) of a step: factors of D1 D2 L_d above and below the
   diagonal, D1 D1, D2 D2. more: what terms add to r by q_k and q_k+1 and to p_k+1 by these, each (n, n), or NULL.
   minus, plus: what of F acts at a step's start and end. Written: A (2 n, 2 n), B (2 n, inputs), D2 D2 with terms
   (n, n), and how much of an impulse may come of one, against h M^-1. */
__attribute__((visibility("default"))) int first_order(const mechanism *m, number count, const double *h,
                                                       const double *left, const double *right,
                                                       const double *const *more, const double *minus,
                                                       const double *plus, double *A, double *B, double *D22,
                                                       double *amplified) {
  const number n = m->n, width = (n + WIDE - 1) / WIDE, s = width * WIDE, rows = (n + 3) / 4 * 4, rank = m->rank;
  const number block = rows * width, room = (rows * rank + WIDE - 1) / WIDE;
  void *memory = calloc(11 * block + (4 * rank + 1) * width + room + 1, sizeof(wide));
  if (!memory) return -1;
  wide *W = (wide *)(((unsigned long long)memory + sizeof(wide) - 1) / sizeof(wide) * sizeof(wide));
  wide *S = W + 4 * block, *P1 = S + block, *R = P1 + block, *Y = R + block, *Q = Y + 2 * block; /* both halves */
  wide *turned = Q + 2 * block, *kept = turned + 4 * width * rank;
  double *thin = (double *)(kept + width);
  const number both = 2 * width, nu = m->inputs;
  for (number step = 0; step < count; step++) {
    blocks(m, left + step * n * rank, right + step * 4 * n * rank, W, thin, turned, S, R, P1);
    memset(Y, 0, 4 * block * sizeof *Y);
    for (number i = 0; i < n; i++) { /* Y = -(D1 D1, 1), Q = (D2 D1, 0) */
      const double rotor = m->rotors ? m->rotors[i] / h[step] : 0;
      IN(S, width, i, i) -= rotor, IN(R, width, i, i) += rotor, IN(P1, width, i, i) += rotor;
      for (number j = 0; j < width; j++) Y[i * both + j] = -R[i * width + j];
      IN(Y, both, i, s + i) = -1;
    }
    for (number i = 0; i < n; i++)
      for (number j = 0; j < n; j++) IN(Q, both, j, i) = IN(S, width, i, j);
    for (number i = 0; more && i < n; i++)
      for (number j = 0; j < n; j++) {
        const number of = (step * n + i) * n + j;
        IN(Y, both, i, j) -= more[0][of], IN(S, width, i, j) += more[1][of];
        IN(Q, both, i, j) += more[2][of], IN(P1, width, i, j) += more[3][of];
      }
    solve(n, width, S, Y, kept);                                            /* q_k+1 by q_k, p_k */
    product(1, n, both, n, (double *)P1, s, Y, both, Q, both); /* p_k+1 */
    double most = 0;
    for (number i = 0; i < n; i++) {
      const double size = fabs(IN(Y, both, i, s + i) * m->mass[i]);
      most = size > most || size != size ? size : most;
    }
    amplified[step] = most / h[step];
    double *a = A + step * 4 * n * n, *b = B + step * 2 * n * nu;
    for (number i = 0; i < 2 * n; i++) {
      const double *q = i < n ? &IN(Y, both, i, 0) : &IN(Q, both, i - n, 0), *p = q + s;
      memcpy(a + 2 * n * i, q, n * sizeof *a), memcpy(a + 2 * n * i + n, p, n * sizeof *a);
    }
    forced(m, 2 * n, minus[step], a + n, 2 * n, b);
    for (number j = 0; j < nu; j++) b[(n + m->at[j]) * nu + j] += plus[step] * m->gain[j]; /* its other half */
    for (number i = 0; i < n; i++) memcpy(D22 + (step * n + i) * n, &IN(P1, width, i, 0), n * sizeof *a);
  }
  free(memory);
  return 0;
}

/* Second derivatives of `count` steps along z, from the factors of the blocks' derivatives and from A: xx (2 n, 2 n),
   xu (2 n, inputs), uu (inputs, inputs). With Z = (q_k+1 by q_k, p_k) = (A of the upper rows),
   xx = Z' D22 Z + Z' (D21, 0) + (D12; 0) Z + (D11, 0; 0, 0); a force is as what is added to p_k. */
__attribute__((visibility("default"))) int second_order(const mechanism *m, number count, const double *left,
                                                        const double *right, const double *minus, const double *A,
                                                        double *xx, double *xu, double *uu) {
  const number n = m->n, width = (n + WIDE - 1) / WIDE, s = width * WIDE, rows = (n + 3) / 4 * 4, rank = m->rank;
  const number block = rows * width, room = (rows * rank + WIDE - 1) / WIDE, both = 2 * width, nu = m->inputs;
  void *memory = calloc(4 * block + 3 * block + 4 * block + 4 * s * width + 4 * rank * width + room + 1, sizeof(wide));
  if (!memory) return -1;
  wide *W = (wide *)(((unsigned long long)memory + sizeof(wide) - 1) / sizeof(wide) * sizeof(wide));
  wide *D12 = W + 4 * block, *D11 = D12 + block, *D22 = D11 + block, *Z = D22 + block, *T = Z + 2 * block;
  wide *X = T + 2 * block, *turned = X + 4 * s * width; /* X (2 s, 2 width) */
  double *thin = (double *)(turned + 4 * rank * width);
  for (number step = 0; step < count; step++) {
    const double *a = A + step * 4 * n * n;
    blocks(m, left + step * n * rank, right + step * 4 * n * rank, W, thin, turned, D12, D11, D22);
    for (number i = 0; i < n; i++) {
      memcpy(&IN(Z, both, i, 0), a + 2 * n * i, n * sizeof *a);
      memcpy(&IN(Z, both, i, s), a + 2 * n * i + n, n * sizeof *a);
    }
    product(0, n, both, n, (double *)D22, s, Z, both, T, both);
    for (number i = 0; i < n; i++) {
      for (number j = 0; j < both; j++) T[i * both + j] *= 0.5;
      for (number j = 0; j < n; j++) IN(T, both, i, j) += IN(D12, width, j, i);
    }
    across(2 * s, both, n, (double *)Z, 2 * s, T, both, X, both);
    double *x = xx + step * 4 * n * n, *y = xu + step * 2 * n * nu, *v = uu + step * nu * nu;
    for (number I = 0; I < both; I++) /* 8 x 8 numbers at a time, which stay in the first cache */
      for (number J = I; J < both; J++) {
        const number down = I < width ? n - I * WIDE : n - (I - width) * WIDE, most = down < WIDE ? down : WIDE;
        const number right = J < width ? n - J * WIDE : n - (J - width) * WIDE, least = right < WIDE ? right : WIDE;
        const number p = I * WIDE - (I < width ? 0 : s - n), q = J * WIDE - (J < width ? 0 : s - n);
        for (number i = 0; i < most; i++)
          for (number j = 0; j < least; j++) {
            double sum = IN(X, both, I * WIDE + i, J * WIDE + j) + IN(X, both, J * WIDE + j, I * WIDE + i);
            if (J < width) sum += IN(D11, width, p + i, q + j);
            x[(p + i) * 2 * n + q + j] = x[(q + j) * 2 * n + p + i] = sum;
          }
      }
    forced(m, 2 * n, minus[step], x + n, 2 * n, y);
    for (number i = 0; i < nu; i++) {
      const double by = minus[step] * m->gain[i];
      const double *from = y + (n + m->at[i]) * nu;
      for (number j = 0; j < nu; j++) v[i * nu + j] = by * from[j];
    }
  }
  free(memory);
  return 0;
}
