# cmake -D NAME= -D SOURCE= -D MUTATIONS= -D MUTANT= -P mutate.cmake: writes a copy of SOURCE, changed as the file MUTATIONS says by
# mutate(<original text> <changed text>). Where the original text is not there, a definition says so instead, which the program
# that includes the copy fails with: so one mutant that has to be written anew stops no other program from being built.

file(READ "${SOURCE}" text)
cmake_path(GET SOURCE FILENAME file)
set(complaint "")

function(mutate original changed)
  string(FIND "${text}" "${original}" place)
  if(place EQUAL -1)
    set(complaint "mutant ${NAME}: ${file} has changed; say again where the error is to be put" PARENT_SCOPE)
  endif()
  string(REPLACE "${original}" "${changed}" text "${text}")
  set(text "${text}" PARENT_SCOPE)
endfunction()

include("${MUTATIONS}")
if(complaint)
  string(PREPEND text "#define MUTANT_IS_STALE \"${complaint}\"\n")
endif()
file(WRITE "${MUTANT}" "${text}")
