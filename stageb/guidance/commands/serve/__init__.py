"""``stageb serve``: rules as code for programs that ask over HTTP."""
