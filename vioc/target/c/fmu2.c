/* FMI 2.0 for co-simulation: the declarations that the FMU needs. */
EXPORT const char *fmi2GetTypesPlatform(void) { return "default"; }
EXPORT const char *fmi2GetVersion(void) { return "2.0"; }

EXPORT int fmi2SetDebugLogging(void *c, int on, size_t n, const char *const *categories)
{
    (void)c, (void)on, (void)n, (void)categories;
    return GOOD;
}

EXPORT void *fmi2Instantiate(const char *name, int type, const char *token, const char *resources,
                             const void *callbacks, int visible, int logging)
{
    (void)name, (void)resources, (void)callbacks, (void)visible, (void)logging;
    return type == 1 ? created(token) : NULL;
}

EXPORT void fmi2FreeInstance(void *c) { free(c); }

EXPORT int fmi2SetupExperiment(void *c, int has_tolerance, double tolerance, double start, int has_stop, double stop)
{
    (void)has_tolerance, (void)tolerance, (void)has_stop, (void)stop;
    begin(c, start);
    return GOOD;
}

#define ACCEPT(name) EXPORT int name(void *c) { (void)c; return GOOD; }
ACCEPT(fmi2EnterInitializationMode)
ACCEPT(fmi2ExitInitializationMode)
ACCEPT(fmi2Terminate)

EXPORT int fmi2Reset(void *c)
{
    reset(c);
    return GOOD;
}

EXPORT int fmi2GetReal(void *c, const unsigned *r, size_t n, double *v) { return get(c, r, n, v); }
EXPORT int fmi2SetReal(void *c, const unsigned *r, size_t n, const double *v) { return set(c, r, n, v); }

EXPORT int fmi2DoStep(void *c, double time, double length, int no_return)
{
    (void)no_return;
    return samples(c, time, length);
}

/* Functions that the FMU does not support. */
#define NO_VALUES(name) \
    EXPORT int name(void *c, const unsigned *r, size_t n, void *v) { (void)c, (void)r, (void)v; return n ? REFUSED : GOOD; }
NO_VALUES(fmi2GetInteger)
NO_VALUES(fmi2GetBoolean)
NO_VALUES(fmi2GetString)
NO_VALUES(fmi2SetInteger)
NO_VALUES(fmi2SetBoolean)
NO_VALUES(fmi2SetString)
#define NO_STATE(name) EXPORT int name(void *c, void *state) { (void)c, (void)state; return REFUSED; }
NO_STATE(fmi2GetFMUstate)
NO_STATE(fmi2SetFMUstate)
NO_STATE(fmi2FreeFMUstate)
#define NO_STATUS(name) EXPORT int name(void *c, int kind, void *v) { (void)c, (void)kind, (void)v; return REFUSED; }
NO_STATUS(fmi2GetStatus)
NO_STATUS(fmi2GetRealStatus)
NO_STATUS(fmi2GetIntegerStatus)
NO_STATUS(fmi2GetBooleanStatus)
NO_STATUS(fmi2GetStringStatus)
#define NO_RATES(name) \
    EXPORT int name(void *c, const unsigned *r, size_t n, const int *order, void *v) \
    { (void)c, (void)r, (void)n, (void)order, (void)v; return REFUSED; }
NO_RATES(fmi2SetRealInputDerivatives)
NO_RATES(fmi2GetRealOutputDerivatives)

EXPORT int fmi2CancelStep(void *c) { (void)c; return REFUSED; }

EXPORT int fmi2SerializedFMUstateSize(void *c, void *state, size_t *size)
{
    (void)c, (void)state, (void)size;
    return REFUSED;
}

EXPORT int fmi2SerializeFMUstate(void *c, void *state, char *bytes, size_t size)
{
    (void)c, (void)state, (void)bytes, (void)size;
    return REFUSED;
}

EXPORT int fmi2DeSerializeFMUstate(void *c, const char *bytes, size_t size, void **state)
{
    (void)c, (void)bytes, (void)size, (void)state;
    return REFUSED;
}

EXPORT int fmi2GetDirectionalDerivative(void *c, const unsigned *unknown, size_t n, const unsigned *known, size_t m,
                                        const double *seed, double *v)
{
    (void)c, (void)unknown, (void)n, (void)known, (void)m, (void)seed, (void)v;
    return REFUSED;
}
