#compdef mcm
# Completion of mcm for zsh: source <(mcm completion zsh)
_mcm() {
    local line directive=""
    local -a found
    while IFS= read -r line; do
        case "$line" in
            :*) directive="$line" ;;
            *) found+=("${${line//:/\\:}/$'\t'/:}") ;;
        esac
    done < <("${words[1]}" __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( ${#found} )); then
        _describe mcm found
    elif [[ "$directive" == ":0" ]]; then
        _files
    fi
}
# As a file in fpath this is the body of the function itself.
if [ "$funcstack[1]" = "_mcm" ]; then
    _mcm "$@"
else
    compdef _mcm mcm
fi
