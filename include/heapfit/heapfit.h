/*
 * heapfit's public interface. Every name starts with hf_ or HF_; sizes are in bytes.
 */
#ifndef HEAPFIT_HEAPFIT_H
#define HEAPFIT_HEAPFIT_H

#ifdef __cplusplus
extern "C" {
#endif

#define HF_API __attribute__((visibility("default")))

/* The version of the library in use, such as "0.1.0". Any thread; never NULL; not to be freed. */
HF_API const char *hf_version(void);

#ifdef __cplusplus
}
#endif

#endif
