{{- define "mcm.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "mcm.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "mcm.labels" -}}
{{ include "mcm.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ .Values.mode }}
app.kubernetes.io/part-of: mcm
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- end -}}

{{- define "mcm.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "mcm.isCapi" -}}
{{- if eq .Values.mode "capi-manager" }}true{{ end -}}
{{- end -}}

{{/* Namespace of the machine objects and of the Leases. */}}
{{- define "mcm.controlNamespace" -}}
{{- default .Release.Namespace .Values.controlNamespace -}}
{{- end -}}

{{- define "mcm.serviceAccount" -}}
{{- if and .Values.serviceAccount.create (include "mcm.isCapi" .) -}}
{{- default "capmcm-manager" .Values.serviceAccount.name -}}
{{- else if .Values.serviceAccount.create -}}
{{- default (include "mcm.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "mcm.account" -}}
{{- if .Values.serviceAccount.create }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "mcm.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
  labels: {{- include "mcm.labels" . | nindent 4 }}
  {{- with .Values.serviceAccount.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* The right to create bootstrap tokens is a part of the release. */}}
{{- define "mcm.makesTokens" -}}
{{- $wanted := toString .Values.target.bootstrapTokens -}}
{{- if or (eq $wanted "true") (and (eq $wanted "auto") (eq .Values.mode "drop-in")) }}true{{ end -}}
{{- end -}}

{{- define "mcm.tokensFile" -}}
{{ include "mcm.roles" . }}/{{ if eq .Values.mode "drop-in" }}target{{ else }}bootstrap-tokens{{ end }}.yaml
{{- end -}}

{{/* Cluster-wide objects of one release. */}}
{{- define "mcm.clusterName" -}}
{{- printf "%s-%s-target" .Release.Namespace (include "mcm.fullname" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The ClusterRole with which the classes of other namespaces are seen. */}}
{{- define "mcm.classesName" -}}
{{- printf "%s-%s-classes" .Release.Namespace (include "mcm.fullname" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The rules of the role of a kind in a file: a dict of root, file and kind. */}}
{{- define "mcm.rules" -}}
{{- $kind := .kind -}}
{{- range splitList "\n---\n" (.root.Files.Get .file) -}}
{{- $object := fromYaml . -}}
{{- if eq $object.kind $kind -}}
{{ toYaml $object.rules }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The folder with the roles of the mode: those that the Go programs have, or no more than mcm uses. */}}
{{- define "mcm.roles" -}}
{{- if eq .Values.mode "drop-in" }}files/config/rbac{{ else }}files/config/standalone{{ end -}}
{{- end -}}

{{- define "mcm.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "mcm.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "mcm.logFlags" -}}
- --v={{ .Values.log.level }}
{{- with .Values.log.format }}
- --log-format={{ . }}
{{- end }}
{{- end -}}

{{/* Flags of mcm run and of the two Go programs. */}}
{{- define "mcm.flags" -}}
- --control-kubeconfig=inClusterConfig
{{- if eq .Values.target.type "secret" }}
- --target-kubeconfig=/etc/mcm/target/kubeconfig
{{- else if eq .Values.target.type "none" }}
- --target-kubeconfig=none
{{- else }}
- --target-kubeconfig=
{{- end }}
- --namespace={{ include "mcm.controlNamespace" . }}
{{- end -}}

{{/* The containers of the mode: a list of dicts of name, program, arguments, port of the probes, and port of the metrics. */}}
{{- define "mcm.programs" -}}
{{- if include "mcm.isCapi" . -}}
- name: manager
  command: [/mcm, capi-manager, --leader-elect]
  program: capi-manager
  ports: {healthz: 9440, metrics: 8443}
  probes: healthz
{{- else if eq .Values.mode "drop-in" -}}
{{- range .Values.dropIn.programs }}
- name: {{ . }}
  command: [/{{ . }}]
  program: {{ . }}
  ports: { {{- if eq . "machine-controller" }}providermetrics: 10259{{ else }}metrics: 10258{{ end -}} }
  probes: {{ if eq . "machine-controller" }}providermetrics{{ else }}metrics{{ end }}
{{- end }}
{{- else -}}
- name: mcm
  command: [/mcm, run]
  program: run
  ports: {metrics: 10258}
  probes: metrics
{{- end -}}
{{- end -}}
