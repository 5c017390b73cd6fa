belay_output=$BELAY_OUTPUT
unset BELAY_OUTPUT
belay_code=$1
shift
while [ $# -gt 0 ]; do
    eval "$1=\$2"
    shift 2
done
eval "$belay_code"
belay_status=$?
[ "$belay_status" -eq 0 ] || exit "$belay_status"
# In digits: the text may have line breaks.
printf 'digits=%s\n' "$(printf %s "$result" | od -An -v -tx1 | tr -d ' \n')" >>"$belay_output"
