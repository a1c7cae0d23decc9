"""Serves the API of one service of OpenStack: serve.py MODULE PORT."""

import importlib
import sys

import waitress

module, port = sys.argv[1], int(sys.argv[2])
# The services read their own arguments from here.
sys.argv = sys.argv[:1]
application = importlib.import_module(module).application
waitress.serve(application, host="127.0.0.1", port=port, threads=8)
