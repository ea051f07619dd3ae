/* FMI 3.0 for co-simulation: the declarations that the FMU needs. */
#include <stdbool.h>

EXPORT const char *fmi3GetVersion(void) { return "3.0"; }

LOGGING(fmi3SetDebugLogging, bool)

EXPORT void *fmi3InstantiateCoSimulation(const char *name, const char *token, const char *resources, bool visible,
                                         bool logging, bool events, bool early, const unsigned *intermediate,
                                         size_t n, void *environment, void *log, void *update)
{
    (void)name, (void)resources, (void)visible, (void)logging, (void)events, (void)early, (void)intermediate;
    (void)n, (void)environment, (void)log, (void)update;
    return created(token);
}

EXPORT void *fmi3InstantiateModelExchange(const char *name, const char *token, const char *resources, bool visible,
                                          bool logging, void *environment, void *log)
{
    (void)name, (void)token, (void)resources, (void)visible, (void)logging, (void)environment, (void)log;
    return NULL;
}

EXPORT void *fmi3InstantiateScheduledExecution(const char *name, const char *token, const char *resources,
                                               bool visible, bool logging, void *environment, void *log,
                                               void *clock, void *lock, void *unlock)
{
    (void)name, (void)token, (void)resources, (void)visible, (void)logging, (void)environment, (void)log;
    (void)clock, (void)lock, (void)unlock;
    return NULL;
}

EXPORT void fmi3FreeInstance(void *c) { free(c); }

EXPORT int fmi3EnterInitializationMode(void *c, bool has_tolerance, double tolerance, double start, bool has_stop,
                                       double stop)
{
    (void)has_tolerance, (void)tolerance, (void)has_stop, (void)stop;
    begin(c, start);
    return GOOD;
}

ACCEPT(fmi3ExitInitializationMode)
ACCEPT(fmi3Terminate)
ACCEPT(fmi3EnterStepMode)
RESET(fmi3Reset)

EXPORT int fmi3GetFloat64(void *c, const unsigned *r, size_t n, double *v, size_t m)
{
    return n == m ? get(c, r, n, v) : REFUSED;
}

EXPORT int fmi3SetFloat64(void *c, const unsigned *r, size_t n, const double *v, size_t m)
{
    return n == m ? set(c, r, n, v) : REFUSED;
}

EXPORT int fmi3DoStep(void *c, double time, double length, bool no_return, bool *event, bool *terminate, bool *early,
                      double *last)
{
    const int status = samples(c, time, length);
    (void)no_return;
    *event = *early = false;
    *terminate = status != GOOD;
    *last = ((instance *)c)->values[0];
    return status;
}

/* Functions that the FMU does not support. */
#define NO_TYPE(name) NONE2(fmi3Get##name, void *, size_t) NONE2(fmi3Set##name, void *, size_t)
NO_TYPE(Float32)
NO_TYPE(Int8)
NO_TYPE(UInt8)
NO_TYPE(Int16)
NO_TYPE(UInt16)
NO_TYPE(Int32)
NO_TYPE(UInt32)
NO_TYPE(Int64)
NO_TYPE(UInt64)
NO_TYPE(Boolean)
NO_TYPE(String)
REFUSE1(fmi3GetFMUState, void *)
REFUSE1(fmi3SetFMUState, void *)
REFUSE1(fmi3FreeFMUState, void *)
REFUSE0(fmi3EnterEventMode)
REFUSE0(fmi3EnterConfigurationMode)
REFUSE0(fmi3ExitConfigurationMode)
REFUSE0(fmi3EvaluateDiscreteStates)
REFUSE2(fmi3GetContinuousStates, void *, size_t)
REFUSE2(fmi3SetContinuousStates, void *, size_t)
REFUSE2(fmi3GetContinuousStateDerivatives, void *, size_t)
REFUSE2(fmi3GetNominalsOfContinuousStates, void *, size_t)
REFUSE2(fmi3GetEventIndicators, void *, size_t)
REFUSE0(fmi3EnterContinuousTimeMode)
REFUSE1(fmi3GetNumberOfContinuousStates, void *)
REFUSE1(fmi3GetNumberOfEventIndicators, void *)
NONE3(fmi3GetBinary, void *, void *, size_t)
NONE3(fmi3SetBinary, void *, void *, size_t)
NONE1(fmi3GetClock, void *)
NONE1(fmi3SetClock, void *)
NONE1(fmi3GetShiftDecimal, void *)
NONE1(fmi3SetShiftDecimal, void *)
NONE2(fmi3GetIntervalDecimal, void *, void *)
NONE2(fmi3SetIntervalDecimal, void *, void *)
NONE2(fmi3GetShiftFraction, void *, void *)
NONE2(fmi3SetShiftFraction, void *, void *)
NONE3(fmi3GetIntervalFraction, void *, void *, void *)
NONE3(fmi3SetIntervalFraction, void *, void *, void *)
#define NO_SLOPES(name) \
    EXPORT int name(void *c, const unsigned *a, size_t n, const unsigned *b, size_t m, const double *seed, size_t k, \
                    double *v, size_t l) \
    { (void)c, (void)a, (void)n, (void)b, (void)m, (void)seed, (void)k, (void)v, (void)l; return REFUSED; }
NO_SLOPES(fmi3GetDirectionalDerivative)
NO_SLOPES(fmi3GetAdjointDerivative)
NONE3(fmi3GetOutputDerivatives, const int *, double *, size_t)
REFUSE2(fmi3GetNumberOfVariableDependencies, unsigned, size_t *)
REFUSE6(fmi3GetVariableDependencies, unsigned, size_t *, unsigned *, size_t *, int *, size_t)
REFUSE2(fmi3SerializedFMUStateSize, void *, size_t *)
REFUSE3(fmi3SerializeFMUState, void *, unsigned char *, size_t)
REFUSE3(fmi3DeserializeFMUState, const unsigned char *, size_t, void **)
REFUSE6(fmi3UpdateDiscreteStates, bool *, bool *, bool *, bool *, bool *, double *)
REFUSE3(fmi3CompletedIntegratorStep, bool, bool *, bool *)
REFUSE1(fmi3SetTime, double)
REFUSE2(fmi3ActivateModelPartition, unsigned, double)
