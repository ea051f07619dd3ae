/* Steps as tables of calls of kernels that CasADi generated: one kernel for each kind of body and constraint in
 * maximal coordinates, kernels of the whole mechanism in generalized ones.
 *
 * A tape is a row of instructions on one array of doubles:
 *     CALL  kernel, inputs, outputs, places..      what the kernel reads and writes, in place
 *     ADD   length, target, source, index, sign    w[target + index[i]] += sign w[source + i]
 *     COPY  length, target, source, sign           w[target + i] = sign w[source + i]
 *     ZERO  length, target
 * tape.py writes them; the iterations are those of docs/maths/maximal.md and docs/maths/contact.md.
 *
 * Written by hand, once for all mechanisms: the same iterations in numpy take 23 to 40 times the time of a step (one
 * and five boxes on a floor, in both kinds of coordinates).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef long long Int;
typedef int (*Kernel)(const double **, double **, Int *, double *, int);
#define API __attribute__((visibility("default")))
enum { CALL, ADD, COPY, ZERO };
enum { START, MATRIX, BEGIN, LEAVE, SOLVE, REST, WORK, AFTER, TAPES };

typedef struct {
    const Kernel *kernels;
    const Int *tape[TAPES], *end[TAPES], *index;
    double *image;                /* the array: constants, parameters, the state between calls */
    Int size, n_arg, n_res, n_iw, n_w;
    Int nx, nv, nu, rows;         /* numbers of states, velocities, inputs, multipliers of constraints */
    Int bodies;                   /* number of poses in the state, 0 for a flat state */
    Int lasting;                  /* whether the first guess of contact impulses follows from the gaps at the start */
    Int guess, extent, extents;   /* places: first guess of V; coordinates in natural units; their number */
    Int works;                    /* 2; 0 without `work`; 3 if the root's certificate adds to the error */
    Int carry, u, t, dt;          /* places: carry (z and momenta for an arrival), input, time, step length */
    Int V, dV, found, multipliers, values, left, after;    /* found: multipliers that a linear solve returns */
    Int mismatch, products, impulses, y, dy, fresh, gaps, kappa, speed;    /* of the contacts, docs/maths/contact.md; lag follows kappa */
    Int work;                     /* kinetic energy that impulses add, and twice that of V; if works */
    Int touches, mismatches, complementary, size_y, positives, rounds, rubbing, pushes;
    const double *scales;         /* momenta divided by them are velocities */
    const double *sizes;          /* natural units of the coordinates: 1 rad, or the length of the mechanism */
    const double *row_sizes;      /* natural units of the constraints and of the mismatches */
    const Int *wrap;              /* states of a flat space that are angles modulo a turn */
    const Int *parts;             /* first index in y of each contact's variables, and the end */
    const Int *positive;          /* entries of y that stay positive */
    const Int (*round)[3];        /* (t, x, z) with t > |(x, z)| */
    const Int (*before)[2];       /* gamma and the previous solution's gamma, of contacts with friction */
    const double *centers;        /* targets of the products, divided by kappa */
    double stop;
    Int limit;
    double mass, length, floor;   /* of the mechanism; kappa at the end */
    double sample;                /* fraction of the step at which its time is taken */
    Int polish;                   /* whether one more step brings products nearer to kappa */
} Model;

typedef struct {
    double *w, *kw;               /* the array; work of kernels */
    const double **arg;
    double **res;
    Int *iw;
    double *saved, *bounds;       /* V, multipliers of constraints, y before a line search; and bounds of friction */
    const double *guess;          /* first guess of V for the interior point */
    double floor;                 /* last kappa: the model's, or a larger one during continuation */
} Work;

static void run(const Model *m, int which, Work *k) {
    double *w = k->w;
    for (const Int *c = m->tape[which]; c < m->end[which];) switch (*c) {
        case CALL: {
            const Int *at = c + 4;
            for (Int i = 0; i < c[2]; i++, at++) k->arg[i] = *at < 0 ? NULL : w + *at;
            for (Int i = 0; i < c[3]; i++, at++) k->res[i] = *at < 0 ? NULL : w + *at;
            m->kernels[c[1]](k->arg, k->res, k->iw, k->kw, 0);
            c = at;
            break;
        }
        case ADD: {
            double *to = w + c[2], f = c[5];
            const double *from = w + c[3];
            if (c[4] < 0) for (Int i = 0; i < c[1]; i++) to[i] += f * from[i];
            else {
                const Int *index = m->index + c[4];
                for (Int i = 0; i < c[1]; i++) to[index[i]] += f * from[i];
            }
            c += 6;
            break;
        }
        case COPY: {
            double *to = w + c[2], f = c[4];
            const double *from = w + c[3];
            for (Int i = 0; i < c[1]; i++) to[i] = f * from[i];
            c += 5;
            break;
        }
        default: /* ZERO */
            memset(w + c[2], 0, c[1] * sizeof(double));
            c += 3;
    }
}

static double largest(const double *a, Int n) {
    double most = 0;
    for (Int i = 0; i < n; i++) most = fmax(most, fabs(a[i]));
    return most;
}

/* 2-norm of the residuals, as speeds in natural units, 1/s. */
static double speeds_left(const Model *m, const double *w) {
    double total = 0;
    for (Int i = 0; i < m->nv; i++) {
        double e = w[m->left + i] / (m->scales[i] * m->sizes[i]);
        total += e * e;
    }
    for (Int i = 0; i < m->rows; i++) {
        double e = w[m->values + i] / (m->row_sizes[i] * w[m->dt]);
        total += e * e;
    }
    for (Int i = 0; i < m->mismatches; i++) {
        double e = w[m->mismatch + i] / m->row_sizes[m->rows + i];
        total += e * e;
    }
    return sqrt(total);
}

/* Scaled residual of the equations at V. */
static double residual(const Model *m, Work *k) {
    double *w = k->w;
    run(m, LEAVE, k);
    run(m, REST, k);
    return w[m->dt] * speeds_left(m, w) / (1 + largest(w + m->extent, m->extents));
}

static const double CONTRACTION = 0.25, WIDE = 1, AMBLE = 0.01; /* upper bounds: first correction times present one over last one squared; rotation in a step; a slow motion in a step: maximal_kernel.py */

/* Find the twists that leave the state in the carry, by Newton's iteration from its twists. Return the scaled residual, infinite
   if the corrections contract too slowly to certify the root. */
static double depart(const Model *m, Work *k, double tolerance, Int *iterations) {
    double *w = k->w, *V = w + m->V, *dV = w + m->dV, first = 0, last = 0;
    Int size = m->nv;
    memcpy(V, w + m->guess, size * sizeof(double));
    double fastest = 0;
    for (Int i = 0; i < size; i++) fastest = fmax(fastest, fabs(V[i]) / m->sizes[i]);
    fastest += AMBLE / fabs(w[m->dt]);
    for (const double *spin = V + 3; m->rows && spin < V + size; spin += 6)
        if (w[m->dt] * sqrt(spin[0] * spin[0] + spin[1] * spin[1] + spin[2] * spin[2]) > WIDE) return INFINITY;
    run(m, START, k);
    double least = tolerance * (1 + largest(w + m->extent, m->extents)) / w[m->dt];
    for (*iterations = 0; *iterations < m->limit;) {
        run(m, LEAVE, k);
        run(m, SOLVE, k);
        ++*iterations;
        double weighted = 0, plain = 0, most = 0;
        for (Int i = 0; i < size; i++) {
            double e = fabs(dV[i]) / m->sizes[i];
            most = e <= most ? most : e; /* keeps NaN */
            plain += e * e;
            weighted += m->scales[i] * dV[i] * dV[i];
        }
        weighted = sqrt(weighted);
        if (last > 0 && sqrt(plain) > least && weighted * first > CONTRACTION * last * last) return INFINITY;
        if (last == 0) first = weighted;
        last = weighted;
        memcpy(w + m->multipliers, w + m->found, m->rows * sizeof(double));
        for (Int i = 0; i < size; i++) V[i] += dV[i];
        if (!(most > m->stop * fastest)) break;
    }
    return residual(m, k);
}

/* Find the velocities of the state in the carry, which are linear in its momenta. Return the scaled residual. */
static double arrive(const Model *m, Work *k) {
    double *w = k->w;
    run(m, START, k);
    memset(w + m->V, 0, m->nv * sizeof(double));
    run(m, LEAVE, k);
    run(m, SOLVE, k);
    memcpy(w + m->multipliers, w + m->found, m->rows * sizeof(double));
    memcpy(w + m->V, w + m->dV, m->nv * sizeof(double));
    double error = residual(m, k);
    if (m->works) run(m, WORK, k);
    return error;
}

/* -- steps with contact: the interior point of interior.py -------------------------------------------- */

static const double COLD[] = {0.1, 10, 1e-3, 1e2, 1e3}, WARM = 0.01, TINY = 1e-15, LEAST = 3e-5, BOUNDARY = 0.99;
static const double CENTERED = 1e-6, POLISHED = 1e-9, SHORT = 0.1, FAR = 0.5, NEAR = 0.9, CLIP = 0.1, SAME = 1e-6;
static const double GAIN = 0.2, SLIGHT = 1e6;
static const double TYPICAL = 0.03, DOWN = 0.31622776601683794;
enum { STEPS = 100, PATIENCE = 20, STUCK = 2, JUMP = 2, LAND = 6, JAMMED = 8, HALVINGS = 12, STARTS = 5, ROUNDS = 100 };

static double off_center(const Model *m, const double *w, double kappa) {
    double most = 0;
    for (Int i = 0; i < m->complementary; i++) {
        double e = fabs(w[m->products + i] - kappa * m->centers[i]);
        if (!(e <= most)) most = e;
    }
    return most;
}

/* Largest step length that keeps (t, x, z) in the round cone. */
static double to_cone(const double *y, const double *dy, const Int *r) {
    double t = y[r[0]], x = y[r[1]], z = y[r[2]], dt = dy[r[0]], dx = dy[r[1]], dz = dy[r[2]];
    double a = dt * dt - dx * dx - dz * dz, b = t * dt - x * dx - z * dz, c = fmax(t * t - x * x - z * z, 0);
    double square = b * b - a * c;
    if (square < 0 || (b >= 0 && a >= 0)) return INFINITY;
    return b < 0 ? c / (sqrt(square) - b) : -(b + sqrt(square)) / a;
}

/* Largest step length that keeps y in its cones. */
static double longest(const Model *m, const double *y, const double *dy) {
    double length = INFINITY;
    for (Int i = 0; i < m->positives; i++) {
        Int j = m->positive[i];
        if (dy[j] < 0) length = fmin(length, -y[j] / dy[j]);
    }
    for (Int i = 0; i < m->rounds; i++) length = fmin(length, to_cone(y, dy, m->round[i]));
    return length;
}

/* Full Newton step with every variable clipped to its own cone: it leaves a central path that turns back. */
static void clipped(const Model *m, double *w, const double *saved) {
    Int size = m->nv;
    const double *old = saved + size + m->rows, *dy = w + m->dy;
    for (Int i = 0; i < size; i++) w[m->V + i] = saved[i] + w[m->dV + i];
    for (Int i = 0; i < m->rows; i++) w[m->multipliers + i] = saved[size + i] + w[m->found + i];
    for (Int i = 0; i < m->positives; i++) {
        Int at = m->positive[i];
        w[m->y + at] = fmax(old[at] + dy[at], CLIP * old[at]);
    }
    for (Int i = 0; i < m->rounds; i++) {
        const Int *r = m->round[i];
        double length = fmin(1, BOUNDARY * to_cone(old, dy, r));
        for (int j = 0; j < 3; j++) w[m->y + r[j]] = old[r[j]] + length * dy[r[j]];
    }
}

/* Factor of the barrier after a step of a given length; above 1 if steps are very short. */
static double fall(double length) {
    return length < 0.1 * SHORT ? 3 : length < SHORT ? 1 : length < FAR ? 0.3 : length < NEAR ? 0.1 : 0.01;
}

/* Residual after LEAVE has run. */
static double left_there(const Model *m, Work *k) {
    run(m, REST, k);
    return speeds_left(m, k->w);
}

/* The speed of one natural length per step. */
static double stride_of(const Model *m, const double *w) { return m->length / fabs(w[m->dt]); }

/* Begin from k->guess: warm, with the contact impulses of `InteriorPoint._last`, or cold. */
static void begin(const Model *m, Work *k, int warm, double cold) {
    double *w = k->w, *V = w + m->V, *y = w + m->y;
    Int size = m->nv, bytes = sizeof(double);
    run(m, START, k);
    memset(w + m->multipliers, 0, m->rows * bytes);
    if (warm) {
        w[m->speed] = m->floor / (m->mass * stride_of(m, w));
        w[m->kappa] = m->floor;
        memset(V, 0, size * bytes);
        run(m, LEAVE, k);
        run(m, BEGIN, k);
        memcpy(y, w + m->fresh, m->size_y * bytes);
    }
    for (Int i = 0; i < size; i++) V[i] = isfinite(k->guess[i]) ? k->guess[i] : 0;
    run(m, MATRIX, k);
    if (!warm) { /* motion without contact */
        double stride = stride_of(m, w);
        w[m->speed] = stride;
        w[m->kappa] = TINY * m->mass * stride * stride;
        run(m, LEAVE, k);
        run(m, BEGIN, k);
        memcpy(y, w + m->fresh, m->size_y * bytes);
        run(m, REST, k);
        run(m, SOLVE, k);
        for (Int i = 0; i < size; i++) V[i] += w[m->dV + i];
        memcpy(w + m->multipliers, w + m->found, m->rows * bytes);
    }
    run(m, LEAVE, k);
    double speed = LEAST * stride_of(m, w);
    for (Int i = 0; i < m->touches; i++) speed = fmax(speed, -w[m->gaps + i]);
    w[m->speed] = speed;
    w[m->kappa] = fmax(k->floor, (warm ? WARM : cold) * m->mass * speed * speed);
    run(m, BEGIN, k);
    for (Int i = 0; i < m->touches; i++) {
        Int at = m->parts[i];
        double s = y[at], gamma = y[at + 1];
        if (!warm || (w[m->gaps + i] < 0.5 * s && s * m->mass > gamma))
            memcpy(y + at, w + m->fresh + at, (m->parts[i + 1] - at) * bytes);
    }
}

/* Newton's iterations of the interior point from V, the multipliers and y. Return the scaled residual. */
static double iterate(const Model *m, Work *k, int warm, int jumps, Int *iterations) {
    double *w = k->w, *V = w + m->V, *y = w + m->y, *lambda = w + m->multipliers, *found = w + m->found;
    double weight = 0, *saved = k->saved, *kappa = w + m->kappa;
    Int size = m->nv, rows = m->rows, bytes = sizeof(double), count = 0, stuck = 0;
    for (Int i = 0; i < m->complementary; i++) weight += m->centers[i];
    double left = left_there(m, k), off = off_center(m, w, k->floor), length = 0, dt = w[m->dt];
    double extent = 1 + largest(w + m->extent, m->extents), speed = TYPICAL * stride_of(m, w);
    double unit = m->mass * speed * speed;
    int polished = 0;
    while (count < STEPS) {
        if (count && left * dt <= m->stop * extent && off <= CENTERED * k->floor) { /* at least one step */
            if (polished || !m->polish || off <= POLISHED * k->floor) break;
            polished = 1;
        }
        double mean = 0;
        for (Int i = 0; i < m->complementary; i++) mean += w[m->products + i] * m->centers[i] / weight;
        *kappa = fall(count ? length : FAR) * mean;
        if (length >= NEAR) *kappa = fmin(*kappa, unit * pow(mean / unit, 1.5));
        *kappa = fmax(k->floor, *kappa);
        if (count > 6 || !warm) run(m, MATRIX, k); /* until then it is the matrix of the start */
        run(m, SOLVE, k);
        count++;
        length = fmin(1, BOUNDARY * longest(m, y, w + m->dy));
        int clip = jumps && stuck >= JUMP && stuck < LAND;
        double before = off_center(m, w, *kappa), factor = length, now = left;
        memcpy(saved, V, size * bytes);
        memcpy(saved + size, lambda, rows * bytes);
        memcpy(saved + size + rows, y, m->size_y * bytes);
        for (int i = 0; i < HALVINGS; i++) {
            for (Int j = 0; j < size; j++) V[j] = saved[j] + factor * w[m->dV + j];
            for (Int j = 0; j < rows; j++) lambda[j] = saved[size + j] + factor * found[j];
            for (Int j = 0; j < m->size_y; j++) y[j] = saved[size + rows + j] + factor * w[m->dy + j];
            if (clip) clipped(m, w, saved);
            run(m, LEAVE, k);
            now = left_there(m, k);
            if (clip && !isfinite(now)) { /* half a turn or more: shorten the step like any other */
                clip = 0;
                continue;
            }
            double least = 1 - 1e-4 * factor;
            if (clip || now <= least * left || (isfinite(now) && off_center(m, w, *kappa) <= least * before)) break;
            factor /= 2;
        }
        left = now;
        off = off_center(m, w, k->floor);
        stuck = factor < SHORT || clip ? stuck + 1 : 0;
        if (!isfinite(now) || stuck >= (warm ? STUCK : JAMMED) || (warm && count >= PATIENCE)) break;
    }
    *iterations += count;
    return off <= CENTERED * k->floor ? dt * left / extent : INFINITY;
}

/* Solve with friction bounded by the previous solution's normal impulses until both agree. */
static double relax(const Model *m, Work *k, double tolerance, Int *iterations) {
    double *w = k->w, *y = w + m->y, *lag = w + m->kappa + 1, *bound = k->bounds, last = INFINITY, stride = 1;
    for (Int j = 0; j < m->rubbing; j++) bound[j] = y[m->before[j][0]];
    for (int i = 0; i < ROUNDS; i++) {
        begin(m, k, 0, COLD[0]);
        for (Int j = 0; j < m->rubbing; j++) y[m->before[j][1]] = bound[j];
        *lag = 0;
        double error = iterate(m, k, 0, 1, iterations), change = 0, most = 0;
        *lag = 1;
        if (!(error <= tolerance)) return error;
        for (Int j = 0; j < m->rubbing; j++) {
            most = fmax(most, y[m->before[j][0]]);
            change = fmax(change, fabs(y[m->before[j][0]] - bound[j]));
        }
        if (change <= SAME * most) break;
        stride = change > 0.8 * last && change < 1.25 * last ? 2 * stride : 1; /* convergence is slow near a fold */
        last = change;
        for (Int j = 0; j < m->rubbing; j++) {
            double gamma = y[m->before[j][0]];
            bound[j] = fmax(bound[j] + stride * (gamma - bound[j]), CLIP * gamma);
        }
    }
    return iterate(m, k, 0, 1, iterations);
}

/* Infinity if contacts add energy, else `error`. Contacts only dissipate energy, apart from their curvature's effect. */
static double true_error(const Model *m, Work *k, double error) {
    const double *work = k->w + m->work;
    if (!m->works) return error;
    run(m, WORK, k);
    return work[0] <= 0.5 * GAIN * fmax(work[1], SLIGHT * m->floor) ? error : INFINITY;
}

/* Solve at decreasing kappa, each time from the previous solution, or cold if that fails. */
static double follow(const Model *m, Work *k, double tolerance, Int *iterations) {
    double speed = TYPICAL * stride_of(m, k->w);
    for (Int i = 0; i < m->nv; i++) if (isfinite(k->guess[i])) speed = fmax(speed, fabs(k->guess[i]) * m->length / m->sizes[i]);
    double error = INFINITY, level = m->mass * speed * speed;
    for (;; level *= DOWN) {
        k->floor = fmax(level, m->floor);
        error = error <= tolerance ? iterate(m, k, 0, 1, iterations) : error;
        for (int i = 0; i < STARTS && !(error <= tolerance); i++) {
            begin(m, k, 0, COLD[i]);
            error = iterate(m, k, 0, i > 0, iterations);
        }
        if (!(error <= tolerance) || level <= m->floor) break;
    }
    k->floor = m->floor;
    return error;
}

/* Solve one end of a step with contact. Return its scaled residual. */
static double touching(const Model *m, Work *k, double tolerance, Int *iterations) {
    double error = INFINITY;
    k->w[m->kappa + 1] = 1;
    if (m->lasting) {
        begin(m, k, 1, 0);
        error = true_error(m, k, iterate(m, k, 1, 0, iterations));
    }
    for (int i = 0; i < STARTS && !(error <= tolerance); i++) {
        begin(m, k, 0, COLD[i]);
        error = true_error(m, k, iterate(m, k, 0, i > 0, iterations));
    }
    if (!(error <= tolerance)) error = true_error(m, k, relax(m, k, tolerance, iterations));
    return error <= tolerance ? error : true_error(m, k, follow(m, k, tolerance, iterations));
}

/* u = u_d - K difference(x_d, x), K by columns */
static const double TURN = 6.283185307179586476925286766559;

static void feedback(const Model *m, const double *x, const double *goal, const double *K, const double *u_d,
                     double *u) {
    Int n = m->bodies, nu = m->nu, column = 0;
    memcpy(u, u_d, nu * sizeof(double));
    if (!n)
        for (Int i = 0; i < m->nx; i++) {
            double e = x[i] - goal[i];
            if (m->wrap[i]) e -= TURN * floor(e / TURN + 0.5);
            for (Int j = 0; j < nu; j++) u[j] -= K[i * nu + j] * e;
        }
    for (Int b = 0; b < 2 * n; b++) {
        double e[6];
        if (b < n) {
            const double *a = goal + 7 * b, *c = x + 7 * b, *p = a + 3, *q = c + 3;
            double s = 0, v[3], size = 0;
            for (int i = 0; i < 4; i++) s += p[i] * q[i];
            for (int i = 0; i < 3; i++) {
                int j = 1 + (i + 1) % 3, l = 1 + (i + 2) % 3;
                v[i] = p[0] * q[1 + i] - q[0] * p[1 + i] - (p[j] * q[l] - p[l] * q[j]);
                size += v[i] * v[i];
                e[i] = c[i] - a[i];
            }
            size = sqrt(size + 1e-300);
            double sign = s < 0 ? -1 : 1, turn = 2 * atan2(size, sign * s) / size * sign;
            for (int i = 0; i < 3; i++) e[3 + i] = turn * v[i];
        } else
            for (int i = 0; i < 6; i++) e[i] = x[n + 6 * b + i] - goal[n + 6 * b + i];
        for (int i = 0; i < 6; i++, column++)
            for (Int j = 0; j < nu; j++) u[j] -= K[column * nu + j] * e[i];
    }
}

/* Return the number of steps done, at most `count`, or -1 without memory; states, multipliers, inputs, errors by rows.
   Without a state `carry`, steps continue the previous call on these models. If steps are `apart`, every
   step starts from its row of `carry`, and a failed step does not end the call. Without `end` a step has one end, which gives its
   last state. */
API Int vioc_tape_rollout(const Model *m, const Model *end, Int count, Int apart, const double *carry, const double *U,
                          const double *goal, const double *gains, const double *t, const double *dt,
                          double tolerance, double *states, double *multipliers, double *applied,
                          double *errors, Int *iterations) {
    Int nx = m->nx, size = m->nv, done = 0, bytes = sizeof(double), ends = end ? 2 : 1;
    Int poses = end ? 7 * m->bodies : nx, errors_of = m->bodies ? 12 * m->bodies : nx;
    Work k = {m->image, malloc((m->n_w + 1) * bytes),
              malloc((m->n_arg + 1) * sizeof(double *)), malloc((m->n_res + 1) * sizeof(double *)),
              malloc((m->n_iw + 1) * sizeof(Int)),
              malloc((size + m->rows + m->size_y + 1) * bytes), malloc((m->rubbing + 1) * bytes), NULL, m->floor};
    Int rows = m->rows, half = rows + m->pushes;
    if (!k.kw || !k.arg || !k.res || !k.iw || !k.saved || !k.bounds) done = -1;
    else {
        Work after = k;
        if (end) after.w = end->image;
        double *c = k.w + m->carry;
        if (carry) memcpy(c, carry, nx * bytes);
        for (; done < count; done++) {
            double *u = applied + done * m->nu, *x = states + done * nx, *both = multipliers + ends * done * half;
            if (gains) feedback(m, c, goal + done * nx, gains + done * m->nu * errors_of, U + done * m->nu, u);
            else memcpy(u, U + done * m->nu, m->nu * bytes);
            memcpy(k.w + m->u, u, m->nu * bytes);
            k.w[m->t] = t[done] + m->sample * dt[done];
            k.w[m->dt] = dt[done];
            if (end) after.w[end->dt] = dt[done];
            k.guess = k.w + m->guess;
            iterations[done] = 0;
            if (apart) memcpy(c, carry + done * nx, nx * bytes);
            double error = m->touches ? touching(m, &k, tolerance, iterations + done) : depart(m, &k, tolerance, iterations + done);
            if (m->touches && m->works > 2) error += k.w[m->work + 2];
            if (error <= tolerance) run(m, AFTER, &k);
            if (end && error <= tolerance) {
                memcpy(after.w + end->carry, k.w + m->after, nx * bytes);
                after.guess = k.w + m->V;
                double other = m->touches ? touching(end, &after, tolerance, iterations + done) : arrive(end, &after);
                if (end->works > 2) other += after.w[end->work + 2];
                error = other <= tolerance ? fmax(error, other) : other;
            }
            errors[done] = error;
            memcpy(x, k.w + m->after, poses * bytes);
            if (end) memcpy(x + poses, after.w + end->V, size * bytes);
            int good = error <= tolerance;
            for (Int i = 0; i < nx; i++) good = good && isfinite(x[i]);
            if (!good && !apart) break;
            memcpy(both, k.w + m->multipliers, rows * bytes);
            memcpy(both + rows, k.w + m->impulses, m->pushes * bytes);
            if (end) {
                memcpy(both + half, after.w + end->multipliers, rows * bytes);
                memcpy(both + half + rows, after.w + end->impulses, m->pushes * bytes);
            }
            memcpy(c, x, nx * bytes);
        }
    }
    free(k.kw);
    free(k.arg);
    free(k.res);
    free(k.iw);
    free(k.saved);
    free(k.bounds);
    return done;
}
