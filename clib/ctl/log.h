/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RNIC_LOG_H
#define RNIC_LOG_H

#include <stdbool.h>

/* The library that speaks; each defines its own. */
extern const char rnic_library[];

/* Sets errno and returns it, as functions that return an int do; or for "return NULL" ones. */
int rnic_fail(int error);

/* Reports whether RNIC_VERBOSE or RNIC_LOG is set. */
bool rnic_log_is_wanted(void);

/* Writes a line to standard error when RNIC_VERBOSE or RNIC_LOG is set. */
void rnic_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes a line to standard error always: for a program that would hang in silence. */
void rnic_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/*
 * Writes a line to standard error, the first time even unasked: for what no program can do anything
 * about, but a person can.
 */
void rnic_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
