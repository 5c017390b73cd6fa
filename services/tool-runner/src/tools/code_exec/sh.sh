eval "$1"
belay_status=$?
[ "$belay_status" -eq 0 ] || exit "$belay_status"
if [ "${result+is}" = is ]; then
    # In digits: the text may have line breaks.
    belay_digits=$(printf %s "$result" | od -An -v -tx1 | tr -d ' \n')
    if [ -n "$result" ] && [ -z "$belay_digits" ]; then
        echo '`result` cannot be returned: od or tr is not found' >&2
        exit 1
    fi
    printf 'digits=%s\n' "$belay_digits" >>"$BELAY_OUTPUT"
fi
