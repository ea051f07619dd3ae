/* PA = LU of A (n, n), row by row, in place, with row exchanges; 1 if a pivot is zero or not finite. */
static int factor(int n, real *A, int *pivots)
{
    int i, j, k;
    for (k = 0; k < n; ++k) {
        int best = k;
        for (i = k + 1; i < n; ++i)
            if (F(fabs)(A[i * n + k]) > F(fabs)(A[best * n + k])) best = i;
        pivots[k] = best;
        if (!(F(fabs)(A[best * n + k]) > 0)) return 1;
        if (best != k)
            for (j = 0; j < n; ++j) {
                const real kept = A[k * n + j];
                A[k * n + j] = A[best * n + j];
                A[best * n + j] = kept;
            }
        for (i = k + 1; i < n; ++i) {
            const real l = A[i * n + k] /= A[k * n + k];
            for (j = k + 1; j < n; ++j) A[i * n + j] -= l * A[k * n + j];
        }
    }
    return 0;
}

/* b = A^-1 b with the factors of A. */
static void solve(int n, const real *A, const int *pivots, real *b)
{
    int i, j;
    for (i = 0; i < n; ++i) {
        const real kept = b[pivots[i]];
        b[pivots[i]] = b[i];
        b[i] = kept;
    }
    for (i = 1; i < n; ++i)
        for (j = 0; j < i; ++j) b[i] -= A[i * n + j] * b[j];
    for (i = n - 1; i >= 0; --i) {
        for (j = i + 1; j < n; ++j) b[i] -= A[i * n + j] * b[j];
        b[i] /= A[i * n + i];
    }
}

/* C (n, p) = A (n, m) B (m, p). */
static void multiply(int n, int m, int p, const real *A, const real *B, real *C)
{
    int i, j, l;
    for (i = 0; i < n; ++i)
        for (j = 0; j < p; ++j) {
            real sum = 0;
            for (l = 0; l < m; ++l) sum += A[i * m + l] * B[l * p + j];
            C[i * p + j] = sum;
        }
}

/* C (n, p) += A (n, m) B' with B (p, m). */
static void add_product(int n, int m, int p, const real *A, const real *B, real *C)
{
    int i, j, l;
    for (i = 0; i < n; ++i)
        for (j = 0; j < p; ++j)
            for (l = 0; l < m; ++l) C[i * p + j] += A[i * m + l] * B[j * m + l];
}

/* Whether n numbers are finite. */
static int all_finite(int n, const real *a)
{
    int i;
    for (i = 0; i < n; ++i)
        if (!(a[i] - a[i] == 0)) return 0;
    return 1;
}
