// SPDX-License-Identifier: Apache-2.0

// Contents of files of sysfs that depend on the NIC.
#pragma once

enum sysfs_fact { SYSFS_RATE = 1, SYSFS_GID, SYSFS_GUID };

// sysfs_fact returns the text of a file, which the thread's next call overwrites, or NULL if the NIC does not answer.
const char *sysfs_fact(enum sysfs_fact what);
