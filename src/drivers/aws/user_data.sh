#cloud-boothook
#!/bin/sh
# Fetches the user data of this VM from Secrets Manager, deletes the secret, and makes the data a part of the configuration of
# cloud-init, which reads it again after this script. cloud-init runs the script twice in the first boot, once in later ones.
set -u
umask 077
export PATH="$PATH:/usr/local/bin:/snap/bin"
secret=@SECRET@
# In the folder of this instance: an image of this VM does not bring its user data to another one.
data=/var/lib/cloud/instance/mcm-user-data
config=/etc/cloud/cloud.cfg.d/zz-mcm-user-data.cfg

fail() {
    echo "mcm: $*" >&2
    exit 1
}

secrets() {
    command=$1
    shift
    aws secretsmanager "$command" --region @REGION@ @ENDPOINT@ --cli-connect-timeout 10 --cli-read-timeout 30 \
        --secret-id "$secret" "$@"
}

# gunzip fails if the data are not complete.
fetch() {
    secrets get-secret-value --query SecretBinary --output text | base64 -d | gunzip >"$data.new"
}

delete() {
    secrets delete-secret --force-delete-without-recovery >/dev/null
}

# Runs a command until it succeeds, at most so many times.
repeat() {
    left=$1
    pause=1
    shift
    until "$@"; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || return 1
        sleep "$pause"
        [ "$pause" -ge 16 ] || pause=$((pause * 2))
    done
}

if [ ! -e "$data" ]; then
    repeat 15 fetch || fail "secret $secret cannot be read"
    mv "$data.new" "$data"
fi
case $(head -n 1 "$data") in
'## template: jinja'*) cloud-init devel render "$data" >"$data.cfg.new" || fail "the user data cannot be rendered" ;;
*) cp "$data" "$data.cfg.new" ;;
esac
mv "$data.cfg.new" "$data.cfg"
mkdir -p "${config%/*}"
ln -sfn "$data.cfg" "$config" || fail "$config cannot be written"
if [ ! -e "$data.deleted" ]; then
    sync
    repeat 5 delete || fail "secret $secret is still in Secrets Manager, until its machine is deleted"
    : >"$data.deleted"
fi
