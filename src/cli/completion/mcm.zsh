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
compdef _mcm mcm
