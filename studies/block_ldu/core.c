/* Block LDU on a known pattern: see docs/maths/graph_ldu.md.
 *
 * Blocks are row-major in one array of values; `program` says where. For each node, in the order of
 * elimination:
 *     size, first row, place of D, m,  then m times (size, first row, place of U_kj, place of F_jk),
 *     then m x m places of F_ij.
 */
#include <math.h>
#include <string.h>

typedef long long Int;
#define API __attribute__((visibility("default")))
#define ALWAYS static inline __attribute__((always_inline))
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

/* C -= A B, with A r x k, B k x c */
ALWAYS void subtract(Int r, Int k, Int c, const double *restrict a, const double *restrict b, double *restrict out) {
    for (Int i = 0; i < r; i++)
        for (Int l = 0; l < k; l++) {
            double s = a[i * k + l];
            for (Int j = 0; j < c; j++) out[i * c + j] -= s * b[l * c + j];
        }
}

/* C -= A' B, with A k x r, B k x c */
ALWAYS void subtract_transposed(Int r, Int k, Int c, const double *restrict a, const double *restrict b,
                                double *restrict out) {
    for (Int l = 0; l < k; l++)
        for (Int i = 0; i < r; i++) {
            double s = a[l * r + i];
            for (Int j = 0; j < c; j++) out[i * c + j] -= s * b[l * c + j];
        }
}

/* P A = L U in place, the diagonal of U inverted; nonzero where a pivot is zero or not a number */
ALWAYS int factor(Int n, double *a, Int *pivot) {
    double largest = 0;
    for (Int i = 0; i < n * n; i++) largest = fmax(largest, fabs(a[i]));
    for (Int k = 0; k < n; k++) {
        Int p = k;
        for (Int i = k + 1; i < n; i++)
            if (fabs(a[i * n + k]) > fabs(a[p * n + k])) p = i;
        pivot[k] = p;
        if (p != k)
            for (Int j = 0; j < n; j++) {
                double t = a[k * n + j];
                a[k * n + j] = a[p * n + j];
                a[p * n + j] = t;
            }
        if (!(fabs(a[k * n + k]) > 1e-15 * largest)) return 1;
        double d = 1 / a[k * n + k];
        a[k * n + k] = d;
        for (Int i = k + 1; i < n; i++) {
            double s = a[i * n + k] *= d;
            for (Int j = k + 1; j < n; j++) a[i * n + j] -= s * a[k * n + j];
        }
    }
    return 0;
}

/* B <- A^-1 B, c columns */
ALWAYS void divide(Int n, Int c, const double *restrict a, const Int *restrict pivot, double *restrict b) {
    for (Int k = 0; k < n; k++) {
        Int p = pivot[k];
        if (p != k)
            for (Int j = 0; j < c; j++) {
                double t = b[k * c + j];
                b[k * c + j] = b[p * c + j];
                b[p * c + j] = t;
            }
    }
    for (Int k = 0; k < n; k++)
        for (Int i = k + 1; i < n; i++) {
            double s = a[i * n + k];
            for (Int j = 0; j < c; j++) b[i * c + j] -= s * b[k * c + j];
        }
    for (Int k = n - 1; k >= 0; k--) {
        for (Int j = 0; j < c; j++) b[k * c + j] *= a[k * n + k];
        for (Int i = 0; i < k; i++) {
            double s = a[i * n + k];
            for (Int j = 0; j < c; j++) b[i * c + j] -= s * b[k * c + j];
        }
    }
}

/* B <- A^-T B */
ALWAYS void divide_transposed(Int n, Int c, const double *restrict a, const Int *restrict pivot,
                              double *restrict b) {
    for (Int k = 0; k < n; k++) {
        for (Int j = 0; j < c; j++) b[k * c + j] *= a[k * n + k];
        for (Int i = k + 1; i < n; i++) {
            double s = a[k * n + i];
            for (Int j = 0; j < c; j++) b[i * c + j] -= s * b[k * c + j];
        }
    }
    for (Int k = n - 1; k >= 0; k--)
        for (Int i = 0; i < k; i++) {
            double s = a[k * n + i];
            for (Int j = 0; j < c; j++) b[i * c + j] -= s * b[k * c + j];
        }
    for (Int k = n - 1; k >= 0; k--) {
        Int p = pivot[k];
        if (p != k)
            for (Int j = 0; j < c; j++) {
                double t = b[k * c + j];
                b[k * c + j] = b[p * c + j];
                b[p * c + j] = t;
            }
    }
}

/* Loops of constant length for the 6 x 6 blocks of rigid bodies */
#define SIZED(constant, variable) do { if (six) { constant; } else { variable; } } while (0)

/* 0, or 1 + the place in the order of a node whose pivot block is singular */
API Int vioc_ldu_factor(Int nodes, const Int *program, double *v, Int *pivot) {
    const Int *at = program;
    for (Int place = 0; place < nodes; place++) {
        Int n = at[0], row = at[1], m = at[3];
        double *d = v + at[2];
        const Int *link = at + 4, *target = at + 4 + 4 * m;
        int six = n == 6, bad = 0;
        SIZED(bad = factor(6, d, pivot + row), bad = factor(n, d, pivot + row));
        if (bad) return place + 1;
        for (Int j = 0; j < m; j++) {
            double *u = v + link[4 * j + 2];
            six = n == 6 && link[4 * j] == 6;
            SIZED(divide(6, 6, d, pivot + row, u), divide(n, link[4 * j], d, pivot + row, u));
        }
        for (Int i = 0; i < m; i++)
            for (Int j = 0; j < m; j++) {
                Int r = link[4 * i], c = link[4 * j];
                double *low = v + link[4 * i + 3], *up = v + link[4 * j + 2], *out = v + target[i * m + j];
                six = n == 6 && r == 6 && c == 6;
                SIZED(subtract(6, 6, 6, low, up, out), subtract(r, n, c, low, up, out));
            }
        at += 4 + 4 * m + m * m;
    }
    return 0;
}

/* b (rows x c, row-major) is overwritten by the solution; `start` is where each node's program begins */
API void vioc_ldu_solve(Int nodes, const Int *program, const Int *start, const double *v, const Int *pivot,
                        Int c, double *b) {
    for (Int place = 0; place < nodes; place++) {
        const Int *at = program + start[place], *link = at + 4;
        Int n = at[0], m = at[3];
        double *own = b + at[1] * c;
        int six = n == 6 && c == 1;
        SIZED(divide(6, 1, v + at[2], pivot + at[1], own), divide(n, c, v + at[2], pivot + at[1], own));
        for (Int i = 0; i < m; i++) {
            Int r = link[4 * i];
            double *other = b + link[4 * i + 1] * c;
            const double *low = v + link[4 * i + 3];
            six = n == 6 && r == 6 && c == 1;
            SIZED(subtract(6, 6, 1, low, own, other), subtract(r, n, c, low, own, other));
        }
    }
    for (Int place = nodes - 1; place >= 0; place--) {
        const Int *at = program + start[place], *link = at + 4;
        Int n = at[0], m = at[3];
        double *own = b + at[1] * c;
        for (Int j = 0; j < m; j++) {
            Int r = link[4 * j];
            const double *other = b + link[4 * j + 1] * c, *up = v + link[4 * j + 2];
            int six = n == 6 && r == 6 && c == 1;
            SIZED(subtract(6, 6, 1, up, other, own), subtract(n, r, c, up, other, own));
        }
    }
}

API void vioc_ldu_solve_transposed(Int nodes, const Int *program, const Int *start, const double *v,
                                   const Int *pivot, Int c, double *b) {
    for (Int place = 0; place < nodes; place++) {
        const Int *at = program + start[place], *link = at + 4;
        Int n = at[0], m = at[3];
        for (Int j = 0; j < m; j++)
            subtract_transposed(link[4 * j], n, c, v + link[4 * j + 2], b + at[1] * c, b + link[4 * j + 1] * c);
    }
    for (Int place = nodes - 1; place >= 0; place--) {
        const Int *at = program + start[place], *link = at + 4;
        Int n = at[0], m = at[3];
        double *own = b + at[1] * c;
        for (Int i = 0; i < m; i++)
            subtract_transposed(n, link[4 * i], c, v + link[4 * i + 3], b + link[4 * i + 1] * c, own);
        divide_transposed(n, c, v + at[2], pivot + at[1], own);
    }
}
