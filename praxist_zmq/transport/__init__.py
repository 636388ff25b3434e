"""The only import of zmq. Moves frames; knows no models."""
