# The secured broker of `scripts/kafka up --secure`; source it, do not run it.
# shellcheck shell=bash disable=SC2154  # data, port and node_dir come from scripts/kafka

# Everything that clients and tests need lies here; the folder also marks the data as secured.
secure_dir() { printf '%s\n' "$data/secure"; }

secure_names() { printf '%s\n' admin processor operator keeper nobody; }

_password() { head -c 18 /dev/urandom | base64 | tr '+/' '-_'; }

_password_of() { sed -n "s/^$1=//p" "$(secure_dir)/passwords"; }

_authority() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=$2" \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign \
    -keyout "$1.key" -out "$1.pem" 2>/dev/null
}

# _certificate NAME CA SUBJECT USAGE [SAN]
_certificate() {
  local extensions="extendedKeyUsage=$4"
  [ $# -lt 5 ] || extensions+=$'\n'"subjectAltName=$5"
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$3" \
    -keyout "$1.key" -out "$1.csr" 2>/dev/null
  openssl x509 -req -in "$1.csr" -CA "$2.pem" -CAkey "$2.key" -CAcreateserial -days 30 \
    -extfile <(printf '%s\n' "$extensions") -out "$1.pem" 2>/dev/null
  rm -f "$1.csr"
}

_base64url() { base64 -w0 | tr '+/' '-_' | tr -d '='; }

_token_key() {
  local modulus
  openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out token.key 2>/dev/null
  openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out other-token.key 2>/dev/null
  modulus=$(openssl rsa -in token.key -noout -modulus | perl -ne 'chomp; s/.*=//; print pack("H*", $_)' | _base64url)
  printf '{"keys":[{"kty":"RSA","use":"sig","alg":"RS256","kid":"memsluice","n":"%s","e":"AQAB"}]}\n' "$modulus" >jwks.json
}

secure_files() {
  local dir user
  dir=$(secure_dir)
  [ ! -f "$dir/listeners" ] || return 0
  command -v openssl >/dev/null 2>&1 || apt_install openssl
  say "making certificates, passwords and a token key in $dir"
  (umask 077 && mkdir -p "$dir.part" && cd "$dir.part" && {
    for user in $(secure_names); do printf '%s=%s\n' "$user" "$(_password)"; done >passwords
    printf 'client-key=%s\n' "$(_password)" >>passwords
    _authority ca "memsluice test CA"
    _authority other-ca "another CA"
    # No name `localhost`: who connects by it must be refused.
    _certificate broker ca broker serverAuth IP:127.0.0.1
    cat broker.key broker.pem >broker-keystore.pem
    _certificate client ca processor clientAuth
    _certificate other-client other-ca processor clientAuth
    openssl pkcs8 -topk8 -in client.key -passout "pass:$(sed -n 's/^client-key=//p' passwords)" -out client-encrypted.key
    _token_key
    cat >listeners <<LISTENERS
plaintext=127.0.0.1:$port
tls=127.0.0.1:$((port + 1))
mtls=127.0.0.1:$((port + 2))
sasl=127.0.0.1:$((port + 3))
LISTENERS
  }) || die "openssl failed in $dir.part"
  rm -rf "$dir"
  mv "$dir.part" "$dir"
}

secure_listeners() {
  printf ',TLS://127.0.0.1:%s,MTLS://127.0.0.1:%s,SASL://127.0.0.1:%s' $((port + 1)) $((port + 2)) $((port + 3))
}

secure_ports() { [ "$secure" -eq 0 ] || printf '%s\n' $((port + 1)) $((port + 2)) $((port + 3)); }

secure_config() {
  local dir user plain=
  dir=$(secure_dir)
  for user in $(secure_names); do plain+=" user_$user=\"$(_password_of "$user")\""; done
  cat <<CONFIG

listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,MTLS:SSL,SASL:SASL_SSL
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
# The plaintext listener on loopback is the test's way in; TLS without a client certificate is anonymous too.
super.users=User:ANONYMOUS;User:admin

ssl.keystore.type=PEM
ssl.keystore.location=$dir/broker-keystore.pem
ssl.truststore.type=PEM
ssl.truststore.location=$dir/ca.pem
listener.name.mtls.ssl.client.auth=required
ssl.principal.mapping.rules=RULE:^CN=([^,]+).*\$/\$1/,DEFAULT

listener.name.sasl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required$plain;
listener.name.sasl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
listener.name.sasl.oauthbearer.sasl.server.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler
listener.name.sasl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url=file://$dir/jwks.json
listener.name.sasl.oauthbearer.sasl.oauthbearer.expected.audience=kafka
listener.name.sasl.oauthbearer.sasl.oauthbearer.expected.issuer=https://memsluice.test
CONFIG
}

# Options of StorageTool: users that exist from the first start.
secure_users() {
  local user mechanism
  for user in $(secure_names); do
    for mechanism in SCRAM-SHA-256 SCRAM-SHA-512; do
      printf '%s\n' --add-scram "$mechanism=[name=$user,password=$(_password_of "$user")]"
    done
  done
}

secure_java() { printf '%s\n' "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://$(secure_dir)/jwks.json"; }

secure_report() {
  local dir
  dir=$(secure_dir)
  say "secured listeners: $(sed 's/=/ /' "$dir/listeners" | tr '\n' ';')"
  printf 'secure: %s\n' "$dir"
}
