/* Replay recorded samples and compare with Python; return 0 if all differences are within the tolerance. */
#include <math.h>
#include <stdio.h>
#include "target.h"
#include "target_samples.h"

#define TOLERANCE CHECK_TOLERANCE

static int failed = 0;

/* Largest difference of n values so far, relative to their scales; NaN is kept. */
static void compare(int n, const target_real *got, const double *expected, const double *scale, double *worst)
{
    int i;
    for (i = 0; i < n; ++i) {
        const double error = fabs((double)got[i] - expected[i]) / scale[i];
        if (!(error <= *worst)) *worst = error;
    }
}

static void report(const char *what, double worst, int count, int status)
{
    const int good = worst <= TOLERANCE && !status;
    printf("%-12s %6d compared, worst difference %.2e (at most %.0e), status %d: %s\n", what, count, worst, TOLERANCE,
           status, good ? "ok" : "FAILED");
    if (!good) failed = 1;
}

static void copy(int n, const double *from, target_real *to)
{
    int i;
    for (i = 0; i < n; ++i) to[i] = (target_real)from[i];
}

#if STEPS
static void steps(void)
{
    double worst = 0, impulses = 0;
    int k, status = 0;
    target_real x[TARGET_NX], u[TARGET_NU + 1], next[TARGET_NX], multipliers[TARGET_NM + 1];
    for (k = 0; k < STEPS; ++k) {
        copy(TARGET_NX, step_x[k], x);
        copy(TARGET_NU, step_u[k], u);
        status |= target_step(step_k[k], x, u, next, multipliers);
        compare(TARGET_NX, next, step_next[k], step_next_scale[0], &worst);
        compare(TARGET_NM, multipliers, step_multipliers[k], step_multipliers_scale[0], &impulses);
    }
    report("step", worst, STEPS, status);
    if (TARGET_NM) report("multipliers", impulses, STEPS, 0);
}
#endif

#if SLOPES
static void slopes(void)
{
    double worst_A = 0, worst_B = 0;
    int k, status = 0;
    target_real x[TARGET_NX], u[TARGET_NU + 1], next[TARGET_NX];
    target_real A[TARGET_NX * TARGET_NX], B[TARGET_NX * TARGET_NU + 1];
    for (k = 0; k < SLOPES; ++k) {
        copy(TARGET_NX, step_x[k], x);
        copy(TARGET_NU, step_u[k], u);
        status |= target_linearize(step_k[k], x, u, next, A, B);
        compare(TARGET_NX * TARGET_NX, A, slope_A[k], slope_A_scale[0], &worst_A);
        compare(TARGET_NX * TARGET_NU, B, slope_B[k], slope_B_scale[0], &worst_B);
    }
    report("A", worst_A, SLOPES, status);
    if (TARGET_NU) report("B", worst_B, SLOPES, status);
}
#endif

#if SAMPLES
static void loop(void)
{
    double belief = 0, command = 0;
    int k, status = 0;
    target_state state;
    target_real x[TARGET_NX], y[TARGET_NY], u[TARGET_NU], applied[TARGET_NU];
    copy(TARGET_NX, start_x[0], x);
    target_start(&state, x);
    state.k = first_k;
    for (k = 0; k < SAMPLES; ++k) {
        copy(TARGET_NY, sample_y[k], y);
        status |= target_output(&state, y, u);
        compare(TARGET_NX, state.x, sample_x[k], sample_x_scale[0], &belief);
        compare(TARGET_NU, u, sample_u[k], sample_u_scale[0], &command);
        copy(TARGET_NU, sample_u[k], applied); /* its own u would feed back rounding */
        status |= target_advance(&state, applied);
    }
    report("estimates", belief, SAMPLES, status);
    report("inputs", command, SAMPLES, status);
}
#endif

int main(void)
{
#if STEPS
    steps();
#endif
#if SLOPES
    slopes();
#endif
#if SAMPLES
    loop();
#endif
    return failed;
}
