{{/*
What every warmstart container needs, wherever it runs: env for the store and its trust, volumes, mounts. `optional` is true where
a missing Secret or ConfigMap must not keep a server from starting.
*/}}

{{- define "warmstart.storeEnv" -}}
{{- $store := .root.Values.store -}}
- name: WARMSTART_STORE
  value: {{ include "warmstart.storeUrl" .root | quote }}
{{- if $store.options }}
- name: WARMSTART_STORE_OPTIONS
  value: {{ toRawJson $store.options | replace "$" "$$" | quote }}
{{- end }}
{{- with $store.endpointUrl }}
- name: AWS_ENDPOINT_URL
  value: {{ . | quote }}
{{- end }}
{{- with $store.region }}
- name: AWS_REGION
  value: {{ . | quote }}
- name: AWS_DEFAULT_REGION
  value: {{ . | quote }}
{{- end }}
{{- include "warmstart.trustEnv" . }}
{{- with .root.Values.huggingFace.endpoint }}
- name: HF_ENDPOINT
  value: {{ . | quote }}
{{- end }}
- name: WARMSTART_LOG_LEVEL
  value: {{ .root.Values.log.level | quote }}
- name: WARMSTART_LOG_FORMAT
  value: {{ .root.Values.log.format | quote }}
{{- if and .root.Values.metrics.pushgateway (or (not .init) .root.Values.metrics.pushFromInit) }}
- name: WARMSTART_PUSHGATEWAY
  value: {{ .root.Values.metrics.pushgateway | quote }}
{{- end }}
{{- end -}}

{{/* Secrets whose keys are env variables, as a list for envFrom: the store's credentials and HF_TOKEN. Nothing where there is none. */}}
{{- define "warmstart.envFrom" -}}
{{- range list .root.Values.store.credentialsSecret .root.Values.huggingFace.tokenSecret }}
{{- if . }}
- secretRef:
    name: {{ . | quote }}
    {{- if $.optional }}
    optional: true
    {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Keys are files: the signing key only where something is published, the trusted keys everywhere. */}}
{{- define "warmstart.trustEnv" -}}
{{- $trust := .root.Values.trust -}}
{{- if and $trust.signingKeySecret.name (not .readOnly) }}
- name: WARMSTART_SIGNING_KEY
  value: {{ printf "/warmstart/signing/%s" $trust.signingKeySecret.key | quote }}
{{- end }}
{{- $files := list }}
{{- if $trust.trustedKeys }}
{{- range $name, $_ := $trust.trustedKeys }}{{ $files = append $files (printf "/warmstart/trusted/%s" $name) }}{{ end }}
{{- else if $trust.trustedKeysConfigMap.name }}
{{- range $trust.trustedKeysConfigMap.keys }}{{ $files = append $files (printf "/warmstart/trusted/%s" .) }}{{ end }}
{{- end }}
{{- with $files }}
- name: WARMSTART_TRUSTED_KEYS
  value: {{ join "," . | quote }}
{{- end }}
- name: WARMSTART_REQUIRE_SIGNATURE
  value: {{ $trust.requireSignature | quote }}
{{- end -}}

{{/* The own pod's name, from the Downward API: for reading the own pod, for claims and for the log. */}}
{{- define "warmstart.downwardEnv" }}
- name: WARMSTART_POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: WARMSTART_POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- end -}}

{{/* Call with (dict "root" $ "optional" $bool "readOnlyStore" $bool "modelFiles" $map "code" $map "readOnly" $bool). */}}
{{- define "warmstart.workVolumes" -}}
{{- $root := .root -}}
- name: warmstart-tmp
  emptyDir:
    sizeLimit: {{ $root.Values.cache.workSizeLimit | quote }}
{{- with include "warmstart.claimName" $root }}
- name: warmstart-store
  persistentVolumeClaim:
    claimName: {{ . | quote }}
    {{- if $.readOnlyStore }}
    readOnly: true
    {{- end }}
{{- end }}
{{- if and $root.Values.trust.signingKeySecret.name (not .readOnly) }}
- name: warmstart-signing
  secret:
    secretName: {{ $root.Values.trust.signingKeySecret.name | quote }}
    defaultMode: 0440
    items:
      - key: {{ $root.Values.trust.signingKeySecret.key | quote }}
        path: {{ $root.Values.trust.signingKeySecret.key | quote }}
    {{- if .optional }}
    optional: true
    {{- end }}
{{- end }}
{{- with include "warmstart.trustedKeysName" $root }}
- name: warmstart-trusted
  configMap:
    name: {{ . | quote }}
    {{- if $.optional }}
    optional: true
    {{- end }}
{{- end }}
{{- with .modelFiles }}
{{- if .configMap }}
- name: warmstart-model
  configMap:
    name: {{ .configMap | quote }}
    {{- if $.optional }}
    optional: true
    {{- end }}
{{- else if .existingClaim }}
- name: warmstart-model
  persistentVolumeClaim:
    claimName: {{ .existingClaim | quote }}
    readOnly: true
{{- end }}
{{- end }}
{{- with .code }}
{{- if .configMap }}
- name: warmstart-code
  configMap:
    name: {{ .configMap | quote }}
    {{- if $.optional }}
    optional: true
    {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "warmstart.workVolumeMounts" -}}
{{- $root := .root -}}
- name: warmstart-tmp
  mountPath: /tmp
{{- if include "warmstart.claimName" $root }}
- name: warmstart-store
  mountPath: /warmstart/store
  {{- with $root.Values.store.claim.subPath }}
  subPath: {{ . | quote }}
  {{- end }}
  {{- if .readOnlyStore }}
  readOnly: true
  {{- end }}
{{- end }}
{{- if and $root.Values.trust.signingKeySecret.name (not .readOnly) }}
- name: warmstart-signing
  mountPath: /warmstart/signing
  readOnly: true
{{- end }}
{{- if include "warmstart.trustedKeysName" $root }}
- name: warmstart-trusted
  mountPath: /warmstart/trusted
  readOnly: true
{{- end }}
{{- if or (.modelFiles | default dict).configMap (.modelFiles | default dict).existingClaim }}
- name: warmstart-model
  mountPath: /warmstart/model
  readOnly: true
{{- end }}
{{- if (.code | default dict).configMap }}
- name: warmstart-code
  mountPath: /warmstart/code
  readOnly: true
{{- end }}
{{- end -}}

{{/* Call with a modelFiles map. */}}
{{- define "warmstart.modelFilesEnv" -}}
{{- if or .configMap .existingClaim }}
- name: WARMSTART_MODEL_FILES
  value: {{ printf "/warmstart/model/%s" (.path | default "") | trimSuffix "/" | quote }}
{{- end }}
{{- end -}}
