#!/bin/sh
# Makes what is missing in a directory of secrets (default: ./secrets), and never changes what is there.
#
# The directory is its owner's alone. The files in it can be read by everybody, since the containers' accounts, which get
# single files of it, have no rights on this machine.
set -eu
cd "$(dirname "$0")"
dir=${1:-${SECRETS:-./secrets}}
umask 022
mkdir -p "$dir"
chmod 700 "$dir"

random() { head -c "$1" /dev/urandom | od -An -tx1 | tr -d ' \n'; }

keep() { # keep NAME VALUE
    if [ ! -e "$dir/$1" ]; then
        printf '%s\n' "$2" > "$dir/$1"
        echo "made $dir/$1"
    fi
}

keep postgres_password "$(random 24)"
keep ledger_url "postgresql://pointsman:$(cat "$dir/postgres_password")@postgres:5432/pointsman"
keep valkey_conf "requirepass $(random 24)"
keep broker_url "redis://:$(sed -n 's/^requirepass //p' "$dir/valkey_conf")@valkey:6379/0"
keep preview_keys "[\"$(random 24)\"]"
keep audit_key "$(random 24)"
keep webhook_secret "whsec_$(head -c 32 /dev/urandom | base64 | tr -d '\n')"
keep gateway_pepper "$(random 24)"
keep provider_key "put-the-key-of-your-model-provider-here"
keep npmrc "# registry=the URL of your npm registry, as \`npm config get registry\` says it"
keep grafana_password "$(random 12)"
