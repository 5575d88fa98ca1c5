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
