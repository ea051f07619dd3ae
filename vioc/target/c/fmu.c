/* FMU @NAME@: an instance and its samples. Functions of FMI follow; see modelDescription.xml. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include "@NAME@_plant.h"
#if @LOOP@
#include "@NAME@_controller.h"
#endif

#if defined _WIN32
#define EXPORT __declspec(dllexport)
#elif defined __GNUC__
#define EXPORT __attribute__((visibility("default")))
#else
#define EXPORT
#endif

#define NX @NAME_UP@_PLANT_NX
#define NU @NAME_UP@_PLANT_NU
#define NM @NAME_UP@_PLANT_NM
#define VALUES (1 + NX + NU + NM) /* time, states, inputs, multipliers: by value reference */
#define STEP @DT@
#define TOKEN "@TOKEN@"
enum { GOOD = 0, REFUSED = 3 };

typedef struct {
    double values[VALUES];
    double begun; /* time of sample 0 */
    int k;
#if @LOOP@
    @NAME@_controller_state controller;
#endif
} instance;

static void reset(instance *s)
{
    static const double start[VALUES] = {@START@};
    memcpy(s->values, start, sizeof start);
    s->k = 0;
    s->begun = 0;
#if @LOOP@
    @NAME@_controller_start(&s->controller, NULL);
#endif
}

static instance *created(const char *token)
{
    instance *s = !token || strcmp(token, TOKEN) ? NULL : malloc(sizeof *s);
    if (s) reset(s);
    return s;
}

static void begin(instance *s, double time)
{
    s->begun = s->values[0] = time;
    s->k = 0;
}

/* Run one sample; return the status of controller and step. */
static int sample(instance *s)
{
    double next[NX], *x = s->values + 1, *u = x + NX, *multipliers = u + NU;
    int status = 0;
#if @LOOP@
    double y[@NAME_UP@_CONTROLLER_NY];
    @NAME@_controller_measure(x, y);
    status |= @NAME@_controller_output(&s->controller, y, u);
    status |= @NAME@_controller_advance(&s->controller, u);
#endif
    status |= @NAME@_plant_step(s->k, x, u, next, multipliers);
    memcpy(x, next, sizeof next);
    ++s->k;
    s->values[0] = s->begun + s->k * STEP;
    return status;
}

/* Run the samples of a communication step, which must be a whole number. */
static int samples(instance *s, double time, double length)
{
    const double count = floor(length / STEP + 0.5);
    int i, status = 0;
    if (!(fabs(time - s->values[0]) <= 1e-6 * STEP) || !(fabs(length - count * STEP) <= 1e-6 * STEP)) return REFUSED;
    for (i = 0; i < (int)count && !status; ++i) status = sample(s);
    return status ? REFUSED : GOOD;
}

static int get(const instance *s, const unsigned *references, size_t n, double *values)
{
    size_t i;
    for (i = 0; i < n; ++i) {
        if (references[i] >= VALUES) return REFUSED;
        values[i] = s->values[references[i]];
    }
    return GOOD;
}

static int set(instance *s, const unsigned *references, size_t n, const double *values)
{
    size_t i;
    for (i = 0; i < n; ++i) {
        if (references[i] == 0 || references[i] >= VALUES) return REFUSED;
        s->values[references[i]] = values[i];
    }
    return GOOD;
}

/* Functions that FMI 2.0 and 3.0 name differently; FLAG is the C type of a Boolean in that version. */
#define ACCEPT(name) EXPORT int name(void *c) { (void)c; return GOOD; }
#define RESET(name) EXPORT int name(void *c) { reset(c); return GOOD; }
#define LOGGING(name, FLAG) \
    EXPORT int name(void *c, FLAG on, size_t n, const char *const *categories) \
    { (void)c, (void)on, (void)n, (void)categories; return GOOD; }

/* Functions that the FMU does not support, by the types of their arguments after the instance. */
#define REFUSE0(name) EXPORT int name(void *c) { (void)c; return REFUSED; }
#define REFUSE1(name, A) EXPORT int name(void *c, A a) { (void)c, (void)a; return REFUSED; }
#define REFUSE2(name, A, B) EXPORT int name(void *c, A a, B b) { (void)c, (void)a, (void)b; return REFUSED; }
#define REFUSE3(name, A, B, C) \
    EXPORT int name(void *c, A a, B b, C d) { (void)c, (void)a, (void)b, (void)d; return REFUSED; }
#define REFUSE4(name, A, B, C, D) \
    EXPORT int name(void *c, A a, B b, C d, D e) { (void)c, (void)a, (void)b, (void)d, (void)e; return REFUSED; }
#define REFUSE6(name, A, B, C, D, E, F) \
    EXPORT int name(void *c, A a, B b, C d, D e, E f, F g) \
    { (void)c, (void)a, (void)b, (void)d, (void)e, (void)f, (void)g; return REFUSED; }

/* Values of types that the FMU does not have: nothing is refused unless a value is asked for. */
#define NONE1(name, A) \
    EXPORT int name(void *c, const unsigned *r, size_t n, A a) { (void)c, (void)r, (void)a; return n ? REFUSED : GOOD; }
#define NONE2(name, A, B) \
    EXPORT int name(void *c, const unsigned *r, size_t n, A a, B b) \
    { (void)c, (void)r, (void)a, (void)b; return n ? REFUSED : GOOD; }
#define NONE3(name, A, B, C) \
    EXPORT int name(void *c, const unsigned *r, size_t n, A a, B b, C d) \
    { (void)c, (void)r, (void)a, (void)b, (void)d; return n ? REFUSED : GOOD; }
