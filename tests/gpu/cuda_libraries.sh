#!/bin/bash
# Prints the folders of CUDA's libraries for LD_LIBRARY_PATH: those of a toolkit, or of Python packages.
places=(/usr/local/cuda/lib64)
package=$(python3 -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null) && places+=("$package"/*/lib "$package"/*/*/lib)
(IFS=:; echo "${places[*]}")
