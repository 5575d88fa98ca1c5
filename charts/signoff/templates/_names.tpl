{{/* Labels of everything that the chart makes itself; generated files stay as they are, so that their content can be compared. */}}
{{- define "signoff.labels" -}}
app.kubernetes.io/name: signoff
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "signoff.selector" -}}
app.kubernetes.io/name: signoff
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{/* What it takes to run steps as Pods: made, watched, read and deleted, never changed. */}}
{{- define "signoff.podRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [create, delete, get, list, watch]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
{{- end }}

{{/* The file of notices: its values, without what only the Pod needs. */}}
{{- define "signoff.notifications" -}}
{{- range .Values.notifications.secrets }}
{{- if not (hasPrefix "signoff-notifications" .name) }}
{{- fail (printf "notifications.secrets: the policy signoff-identity protects only what is named signoff-notifications..., and who can write %s decides where notices are sent; choose another name, such as signoff-notifications-%s" .name .name) }}
{{- end }}
{{- end }}
{{- $names := list }}
{{- range .Values.notifications.channels }}
{{- if has .name $names }}
{{- fail (printf "notifications.channels: two channels have the name %s; give each its own" .name) }}
{{- end }}
{{- $names = append $names .name }}
{{- end }}
{{- range $at, $route := .Values.notifications.routes }}
{{- range $route.to }}
{{- if not (has . $names) }}
{{- fail (printf "notifications.routes[%d].to: there is no channel %s; there are: %s" $at . (join ", " $names)) }}
{{- end }}
{{- end }}
{{- end }}
{{- $page := dict }}
{{- if .Values.web.enabled }}
{{- $_ := set $page "inbox" .Values.web.url }}
{{- end }}
{{- toYaml (omit (mergeOverwrite $page .Values.notifications) "secrets") }}
{{- end }}

{{- define "signoff.web.selector" -}}
app.kubernetes.io/name: signoff
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: web
{{- end }}

{{/* The host of web.url: the only one at which the page works. */}}
{{- define "signoff.web.host" -}}
{{- (urlParse .Values.web.url).hostname }}
{{- end }}

{{/* The Secret with the cookie key, and its key. */}}
{{- define "signoff.web.cookieSecret" -}}
{{- .Values.web.cookieKey.existingSecret | default "signoff-web-cookie-key" }}
{{- end }}

{{/* Values that fit no schema, because they depend on each other. */}}
{{- define "signoff.web.check" -}}
{{- $web := .Values.web }}
{{- if not $web.url }}
{{- fail "web.url: the page needs its public address; set it, for example to https://signoff.example.com" }}
{{- end }}
{{- if and (eq $web.auth "legacy-impersonation") (not $web.iAcceptLegacyImpersonation) }}
{{- fail "web.auth: legacy-impersonation lets the page act as any user, which is cluster-admin; use impersonation (Kubernetes 1.36), or set web.iAcceptLegacyImpersonation to true" }}
{{- end }}
{{- if and (ne $web.auth "pass-through") (not $web.oidc.issuer) }}
{{- fail (printf "web.oidc.issuer: the page impersonates only users whose ID token it verified; set the issuer, or web.auth to pass-through instead of %s" $web.auth) }}
{{- end }}
{{- if and $web.oidc.issuer (not $web.oidc.clientId) }}
{{- fail "web.oidc.clientId: a sign-in with web.oidc.issuer needs the ID of the page's client; set it" }}
{{- end }}
{{- if and (not $web.oidc.issuer) (not $web.tokenSignIn) }}
{{- fail "web.tokenSignIn: without web.oidc.issuer nobody could sign in; set one of them" }}
{{- end }}
{{- if eq $web.auth "pass-through" }}
{{- range $claim := list "usernameClaim" "groupsClaim" "usernamePrefix" "groupsPrefix" }}
{{- if get $web.oidc $claim }}
{{- fail (printf "web.oidc.%s: with web.auth pass-through the API server reads the token; remove the value" $claim) }}
{{- end }}
{{- end }}
{{- end }}
{{- if eq .Values.serviceAccount.name "signoff-web" }}
{{- fail "serviceAccount.name: signoff-web is the service account of the page, which must not hold the operator's rights; choose another name" }}
{{- end }}
{{- range $value, $name := dict "web.cookieKey.existingSecret" $web.cookieKey.existingSecret "web.oidc.clientSecret.existingSecret" $web.oidc.clientSecret.existingSecret "web.oidc.caConfigMap.name" $web.oidc.caConfigMap.name }}
{{- if and $name (not (hasPrefix "signoff-web" $name)) }}
{{- fail (printf "%s: the policy signoff-identity protects only what is named signoff-web..., and whoever writes %s decides who is signed in; choose another name, such as signoff-web-%s" $value $name $name) }}
{{- end }}
{{- end }}
{{- if and $web.ingress.enabled (hasPrefix "signoff-web" $web.ingress.tls.secretName) }}
{{- fail "web.ingress.tls.secretName: the policy signoff-identity lets only administrators write Secrets named signoff-web...; choose another name, such as inbox-tls" }}
{{- end }}
{{- if and $web.httpRoute.enabled (not $web.httpRoute.parentRefs) }}
{{- fail "web.httpRoute.parentRefs: an HTTPRoute needs a Gateway; name one" }}
{{- end }}
{{- end }}
