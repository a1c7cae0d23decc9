# Completion of mcm for bash: source <(mcm completion bash)
_mcm() {
    local cur="${COMP_WORDS[COMP_CWORD]}" line directive=""
    COMPREPLY=()
    while IFS= read -r line; do
        case "$line" in
            :*) directive="$line" ;;
            *) COMPREPLY+=("${line%%$'\t'*}") ;;
        esac
    done < <("${COMP_WORDS[0]}" __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ "$directive" == ":0" && ${#COMPREPLY[@]} -eq 0 ]]; then
        compopt -o default 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    fi
}
complete -F _mcm mcm
