# Completion of mcm for fish: mcm completion fish | source
function __mcm_complete
    set -l words (commandline -opc)[2..-1] (commandline -ct)
    set -l found (mcm __complete -- $words 2>/dev/null)
    set -l candidates (string match -v -r '^:' -- $found)
    if test (count $candidates) -gt 0
        printf '%s\n' $candidates
    else if contains -- :0 $found
        __fish_complete_path (commandline -ct)
    end
end
complete -c mcm -f -a '(__mcm_complete)'
