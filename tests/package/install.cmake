# Installs BUILD below STAGE under one name and moves the result to STAGE/moved.

cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE "${STAGE}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${STAGE}/original"
  COMMAND_ERROR_IS_FATAL ANY)
file(RENAME "${STAGE}/original" "${STAGE}/moved")
