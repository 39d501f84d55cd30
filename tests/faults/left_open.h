/* What a process has open, descriptors and threads, before its work and after it. One thread. */
#ifndef SWALE_TESTS_FAULTS_LEFT_OPEN_H
#define SWALE_TESTS_FAULTS_LEFT_OPEN_H

void note_what_is_open(void);

/* If it is not what was noted: says "leaks N descriptors, M threads" and returns 1. */
int something_is_left_open(void);

#endif
