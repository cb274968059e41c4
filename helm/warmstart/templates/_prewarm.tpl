{{/* The file that says how Jobs look and what pre-warm looks after (`warmstart prewarm`, docs/operations.md). */}}
{{- define "warmstart.prewarm.config" -}}
{{- $prewarm := .Values.prewarm -}}
{{- $job := .Values.job -}}
{{- $env := dict
  "WARMSTART_CACHE_ROOT" .Values.cache.path
  "WARMSTART_IMAGE_MISMATCH" .Values.imageMismatch
  "WARMSTART_CLAIMS" (ternary "off" "store" (eq .Values.claims "off")) -}}
{{- range include "warmstart.storeEnv" (dict "root" .) | fromYamlArray }}{{ $_ := set $env .name .value }}{{ end -}}
{{- $_ := unset $env "WARMSTART_STORE" -}}
{{- with .Values.store.options }}{{ $_ := set $env "WARMSTART_STORE_OPTIONS" (toRawJson .) }}{{ end -}}
{{- with $job.jobs }}{{ $_ := set $env "WARMSTART_JOBS" (toString .) }}{{ end -}}
{{- range $job.extraEnv }}{{ if not .valueFrom }}{{ $_ := set $env .name (.value | default "") }}{{ end }}{{ end -}}
{{- $volumes := list (dict "name" "warmstart-cache" "emptyDir" (dict "sizeLimit" .Values.cache.sizeLimit)) -}}
{{- range include "warmstart.workVolumes" (dict "root" .) | fromYamlArray }}{{ if ne .name "warmstart-tmp" }}{{ $volumes = append $volumes . }}{{ end }}{{ end -}}
{{- $mounts := list (dict "name" "warmstart-cache" "mountPath" .Values.cache.path) -}}
{{- range include "warmstart.workVolumeMounts" (dict "root" .) | fromYamlArray }}{{ if ne .name "warmstart-tmp" }}{{ $mounts = append $mounts . }}{{ end }}{{ end -}}
{{- $pullSecrets := list }}{{ range .Values.imagePullSecrets }}{{ $pullSecrets = append $pullSecrets .name }}{{ end -}}
job:
  image: {{ include "warmstart.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  {{- with $pullSecrets }}
  imagePullSecrets: {{ toJson . }}
  {{- end }}
  store: {{ include "warmstart.storeUrl" . | quote }}
  env:
    {{- toYaml $env | nindent 4 }}
  {{- with include "warmstart.envFrom" (dict "root" .) }}
  envFrom:
    {{- . | nindent 4 }}
  {{- end }}
  volumes:
    {{- toYaml $volumes | nindent 4 }}
  volumeMounts:
    {{- toYaml $mounts | nindent 4 }}
  {{- with (dig "requests" "cpu" "" $job.resources) }}
  cpu: {{ . | quote }}
  {{- end }}
  {{- with (dig "requests" "memory" "" $job.resources) }}
  memory: {{ . | quote }}
  {{- end }}
  scratchSize: {{ .Values.cache.workSizeLimit | quote }}
  {{- with $job.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $job.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $job.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $job.priorityClassName }}
  priorityClass: {{ . | quote }}
  {{- end }}
  {{- with .Values.podSecurityContext }}
  podSecurityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $job.kueue.queueName }}
  queue: {{ . | quote }}
  {{- end }}
  suspend: {{ $job.suspend }}
  {{- $labels := mergeOverwrite (dict) .Values.commonLabels $job.labels }}
  {{- with $job.kueue.priorityClass }}{{ $_ := set $labels "kueue.x-k8s.io/priority-class" . }}{{ end }}
  {{- with $labels }}
  labels:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with mergeOverwrite (dict) .Values.commonAnnotations $job.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  ttlSeconds: {{ $job.ttlSecondsAfterFinished }}
  deadlineSeconds: {{ $job.activeDeadlineSeconds }}
  backoffLimit: {{ $job.backoffLimit }}
  managedBy: {{ printf "%s-prewarm" (include "warmstart.fullname" .) | quote }}
selector: {{ $prewarm.selector | quote }}
namespaces: {{ toJson $prewarm.namespaces }}
resources:
  {{- include "warmstart.prewarm.workloads" . | nindent 2 }}
nodePools: {{ toJson $prewarm.nodePools }}
images: {{ toJson $prewarm.images }}
useNodes: {{ $prewarm.useNodes }}
concurrency: {{ $prewarm.concurrency }}
resyncSeconds: {{ $prewarm.resyncSeconds }}
{{- end -}}

{{/* Kinds of workload that pre-warm lists, as a YAML list; the same that its role names. */}}
{{- define "warmstart.prewarm.workloads" -}}
{{- $kinds := list
  (dict "group" "apps" "version" "v1" "plural" "deployments" "template" "spec.template")
  (dict "group" "apps" "version" "v1" "plural" "statefulsets" "template" "spec.template") -}}
{{- if .Values.prewarm.leaderWorkerSets -}}
{{- $kinds = append $kinds (dict "group" "leaderworkerset.x-k8s.io" "version" "v1" "plural" "leaderworkersets" "template" "spec.leaderWorkerTemplate.workerTemplate") -}}
{{- end -}}
{{- toYaml (concat $kinds .Values.prewarm.workloads) -}}
{{- end -}}

{{/* The pod of pre-warm: metadata and spec. Call with (dict "root" $ "watch" $bool). */}}
{{- define "warmstart.prewarm.podTemplate" -}}
{{- $root := .root -}}
{{- $prewarm := $root.Values.prewarm -}}
{{- $checksum := dict "checksum/config" (include "warmstart.prewarm.config" $root | sha256sum) -}}
metadata:
  {{- include "warmstart.metadata" (dict "root" $root "component" "prewarm" "labels" $prewarm.labels "annotations" (mergeOverwrite $checksum $prewarm.annotations)) | nindent 2 }}
spec:
  {{- if not .watch }}
  restartPolicy: Never
  {{- end }}
  serviceAccountName: {{ include "warmstart.prewarm.serviceAccountName" $root }}
  automountServiceAccountToken: true
  enableServiceLinks: false
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "warmstart.podSecurityContext" $root | nindent 4 }}
  {{- with include "warmstart.scheduling" $prewarm }}
  {{- . | nindent 2 }}
  {{- end }}
  containers:
    - name: warmstart
      image: {{ include "warmstart.storeImage" $root | quote }}
      imagePullPolicy: {{ $root.Values.storeImage.pullPolicy }}
      args: ["prewarm"{{ if .watch }}, "--watch"{{ end }}]
      env:
        - name: WARMSTART_JOB_TEMPLATE
          value: /warmstart/prewarm/config.yaml
        {{- include "warmstart.storeEnv" (dict "root" $root "readOnly" true) | nindent 8 }}
        {{- include "warmstart.downwardEnv" . | trim | nindent 8 }}
      {{- with include "warmstart.envFrom" (dict "root" $root) }}
      envFrom:
        {{- . | nindent 8 }}
      {{- end }}
      {{- with $prewarm.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- include "warmstart.securityContext" (dict "root" $root "gpu" false) | nindent 8 }}
      terminationMessagePath: /dev/termination-log
      terminationMessagePolicy: FallbackToLogsOnError
      volumeMounts:
        - name: warmstart-prewarm
          mountPath: /warmstart/prewarm
          readOnly: true
        {{- include "warmstart.workVolumeMounts" (dict "root" $root "readOnly" true "readOnlyStore" true) | nindent 8 }}
  volumes:
    - name: warmstart-prewarm
      configMap:
        name: {{ include "warmstart.fullname" $root }}-prewarm
    {{- include "warmstart.workVolumes" (dict "root" $root "readOnly" true "readOnlyStore" true) | nindent 4 }}
{{- end -}}

{{/* What pre-warm reads in a namespace that it looks after. */}}
{{- define "warmstart.prewarm.readRules" -}}
{{- range include "warmstart.prewarm.workloads" . | fromYamlArray }}
- apiGroups: [{{ .group | quote }}]
  resources: [{{ .plural | quote }}]
  verbs: ["get", "list", "watch"]
{{- end }}
- apiGroups: ["batch"]
  resources: ["jobs"]
  verbs: ["get", "list", "watch"]
- apiGroups: ["events.k8s.io"]
  resources: ["events"]
  verbs: ["get"]
{{- end -}}

{{/* What pre-warm writes there: Jobs it creates, and Events on the workloads. It deletes nothing. */}}
{{- define "warmstart.prewarm.writeRules" }}
- apiGroups: ["batch"]
  resources: ["jobs"]
  verbs: ["create"]
- apiGroups: ["events.k8s.io"]
  resources: ["events"]
  verbs: ["create", "patch"]
{{- end -}}
