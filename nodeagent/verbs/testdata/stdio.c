// SPDX-License-Identifier: Apache-2.0

// stdio: writes a line by stdio, which calls the kernel by itself, and sleeps for as many milliseconds as its argument says. With a command it reads
// from that, or writes to it, by popen.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int n, char **arg)
{
	char line[100] = "none\n";
	if (n > 2) {
		FILE *f = popen(arg[2], arg[1]);
		if (!f)
			return 1;
		if (*arg[1] == 'r')
			printf("%s", fgets(line, sizeof line, f));
		else
			for (int i = 0; i < 40000; i++)
				fprintf(f, "%d\n", i);
		fflush(stdout);
		printf("%x\n", pclose(f));
		return 0;
	}
	printf("a line\n");
	fflush(stdout);
	usleep(n > 1 ? atoi(arg[1]) * 1000 : 0);
	return 0;
}
