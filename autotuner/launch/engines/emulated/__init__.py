"""An engine whose nodes are processes of this machine, to try an engine out and to test what every engine keeps."""
