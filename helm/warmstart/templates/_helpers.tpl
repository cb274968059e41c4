{{/* Name of the chart, shortened to what a label may hold. */}}
{{- define "warmstart.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Prefix of every object's name. 40 characters leave room for an entry, a GPU type and a digest in a Job's 63. */}}
{{- define "warmstart.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "warmstart.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "warmstart.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The stable labels: what selectors may use. */}}
{{- define "warmstart.selectorLabels" -}}
app.kubernetes.io/name: {{ include "warmstart.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/*
Labels of an object. Call with (dict "root" $ "component" "precompile" "extra" $map); extra goes over commonLabels, and neither
over the stable ones.
*/}}
{{- define "warmstart.labels" -}}
{{- $own := include "warmstart.selectorLabels" .root | fromYaml -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- $_ := set $own "app.kubernetes.io/version" (.root.Chart.AppVersion | toString) -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- $_ := set $own "app.kubernetes.io/part-of" "warmstart" -}}
{{- with .component }}{{ $_ := set $own "app.kubernetes.io/component" . }}{{ end -}}
{{- $given := mergeOverwrite (dict) (deepCopy .root.Values.commonLabels) (deepCopy (.extra | default dict)) -}}
{{- toYaml (mergeOverwrite $given $own) -}}
{{- end -}}

{{/* The annotations of an object as a block, or nothing. Call with (dict "root" $ "extra" $map). */}}
{{- define "warmstart.annotations" -}}
{{- $all := mergeOverwrite (dict) (deepCopy .root.Values.commonAnnotations) (deepCopy (.extra | default dict)) -}}
{{- if $all -}}
annotations:
  {{- toYaml $all | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* A metadata block without its name. Call with (dict "root" $ "component" "prewarm" "labels" $map "annotations" $map). */}}
{{- define "warmstart.metadata" -}}
labels:
  {{- include "warmstart.labels" (dict "root" .root "component" .component "extra" .labels) | nindent 2 }}
{{- with include "warmstart.annotations" (dict "root" .root "extra" .annotations) }}
{{ . }}
{{- end -}}
{{- end -}}

{{/* One image reference. Call with (dict "image" $map "default" $tag). A digest goes before a tag. */}}
{{- define "warmstart.imageReference" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (.image.tag | default .default) -}}
{{- end -}}
{{- end -}}

{{/*
The image that can compile: the server's own vLLM plus warmstart. vLLM's version goes first in the tag: servers may run this image
too, and the version of a server's image is read from there.
*/}}
{{- define "warmstart.image" -}}
{{- include "warmstart.imageReference" (dict "image" .Values.image "default" (printf "v%s-warmstart%s" .Values.vllmVersion .Chart.AppVersion)) -}}
{{- end -}}

{{/* The small image without vLLM, for pre-warm and the care of the store. */}}
{{- define "warmstart.storeImage" -}}
{{- include "warmstart.imageReference" (dict "image" .Values.storeImage "default" (.Chart.AppVersion | toString)) -}}
{{- end -}}

{{- define "warmstart.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "warmstart.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The service account of pre-warm, the only part of the chart that talks to the API server. */}}
{{- define "warmstart.prewarm.serviceAccountName" -}}
{{- if .Values.prewarm.serviceAccount.create -}}
{{- default (printf "%s-prewarm" (include "warmstart.fullname" .)) .Values.prewarm.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.prewarm.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Name of the claim that holds the store, or nothing where the store is not a volume. */}}
{{- define "warmstart.claimName" -}}
{{- if .Values.store.claim.create -}}
{{- default (printf "%s-store" (include "warmstart.fullname" .)) .Values.store.claim.existingClaim -}}
{{- else -}}
{{- .Values.store.claim.existingClaim -}}
{{- end -}}
{{- end -}}

{{/* The store's URL; a claim needs none. */}}
{{- define "warmstart.storeUrl" -}}
{{- if .Values.store.url -}}
{{- .Values.store.url -}}
{{- else if include "warmstart.claimName" . -}}
file:///warmstart/store
{{- end -}}
{{- end -}}

{{/* Name of the ConfigMap with the trusted keys, or nothing. */}}
{{- define "warmstart.trustedKeysName" -}}
{{- if .Values.trust.trustedKeys -}}
{{- printf "%s-trusted-keys" (include "warmstart.fullname" .) -}}
{{- else -}}
{{- .Values.trust.trustedKeysConfigMap.name -}}
{{- end -}}
{{- end -}}

{{/* Security contexts of the restricted profile. Values are merged over them. */}}
{{- define "warmstart.podSecurityContext" -}}
{{- $restricted := dict "runAsNonRoot" true "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- toYaml (mergeOverwrite $restricted (deepCopy .Values.podSecurityContext)) -}}
{{- end -}}

{{/* Call with (dict "root" $ "gpu" $bool): the hook that mounts a driver writes below /, so a GPU needs a writable root. */}}
{{- define "warmstart.securityContext" -}}
{{- $restricted := dict
  "allowPrivilegeEscalation" false
  "capabilities" (dict "drop" (list "ALL"))
  "readOnlyRootFilesystem" (not .gpu)
  "runAsNonRoot" true
  "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- toYaml (mergeOverwrite $restricted (deepCopy .root.Values.securityContext)) -}}
{{- end -}}

{{/* Where a pod runs: the scheduling block of a part of the values. Call with that part. */}}
{{- define "warmstart.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- end -}}
