{{/*
The file that says what pre-warm looks after and how its Jobs look (`warmstart prewarm`, docs/operations.md). Its Jobs are those of
`precompile`: the same pod spec goes over the built-in one.
*/}}
{{- define "warmstart.prewarm.config" -}}
{{- $prewarm := .Values.prewarm -}}
{{- $job := .Values.job -}}
{{- $podSpec := include "warmstart.precompile.podSpec" (dict "root" . "entry" dict "gpu" "" "image" (include "warmstart.image" .)) | fromYaml -}}
{{- /* What pre-warm knows better: the workload's spec and how it is handed over, its container, its GPU type, its image. */ -}}
{{- $container := omit (first $podSpec.containers) "args" "image" -}}
{{- $mounts := list }}{{ range $container.volumeMounts }}{{ if ne .name "warmstart-spec" }}{{ $mounts = append $mounts . }}{{ end }}{{ end -}}
{{- $volumes := list }}{{ range $podSpec.volumes }}{{ if ne .name "warmstart-spec" }}{{ $volumes = append $volumes . }}{{ end }}{{ end -}}
{{- $env := list }}{{ range $container.env }}{{ if ne .name "WARMSTART_STORE" }}{{ $env = append $env . }}{{ end }}{{ end -}}
{{- $_ := set $container "volumeMounts" $mounts -}}
{{- $_ := set $container "env" $env -}}
{{- $_ := set $podSpec "volumes" $volumes -}}
{{- $_ := set $podSpec "containers" (list $container) -}}
{{- /* A Job runs in its workload's namespace, under an account that is there. */ -}}
{{- if $prewarm.jobServiceAccount }}{{ $_ := set $podSpec "serviceAccountName" $prewarm.jobServiceAccount }}{{ else }}{{ $_ := unset $podSpec "serviceAccountName" }}{{ end -}}
{{- $labels := mergeOverwrite (dict) .Values.commonLabels $job.labels -}}
{{- $jobLabels := deepCopy $labels -}}
{{- with $job.kueue.priorityClass }}{{ $_ := set $jobLabels "kueue.x-k8s.io/priority-class" . }}{{ end -}}
{{- $annotations := mergeOverwrite (dict) .Values.commonAnnotations $job.annotations -}}
image: {{ ternary "" (include "warmstart.image" .) $prewarm.serverImage | quote }}
store: {{ include "warmstart.storeUrl" . | quote }}
queue: {{ $job.kueue.queueName | quote }}
selector: {{ $prewarm.selector | quote }}
namespaces: {{ toJson $prewarm.namespaces }}
resources: {{ include "warmstart.prewarm.extraResources" . }}
nodePools: {{ toJson $prewarm.nodePools }}
images: {{ include "warmstart.prewarm.images" . }}
useNodes: {{ $prewarm.useNodes }}
gpus: {{ toJson $prewarm.gpus }}
concurrency: {{ $prewarm.concurrency }}
resyncSeconds: {{ $prewarm.resyncSeconds }}
jobTemplate:
  metadata:
    labels: {{ toJson $jobLabels }}
    annotations: {{ toJson $annotations }}
  spec:
    {{- include "warmstart.jobLimits" . | nindent 4 }}
    {{- if $job.suspend }}
    suspend: true
    {{- end }}
    template:
      metadata:
        labels: {{ toJson $labels }}
        annotations: {{ toJson $annotations }}
      spec:
        {{- toYaml $podSpec | nindent 8 }}
{{- end -}}

{{/* Kinds beside the built-in ones, as a JSON list of PLURAL.VERSION.GROUP. */}}
{{- define "warmstart.prewarm.extraResources" -}}
{{- $names := list -}}
{{- range .Values.prewarm.workloads -}}
{{- $names = append $names (printf "%s.%s%s" .plural .version (ternary (printf ".%s" .group) "" (ne .group ""))) -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* Rules for images, as a JSON list; a rule's code is a file of the mounted ConfigMap. */}}
{{- define "warmstart.prewarm.images" -}}
{{- $rules := list -}}
{{- range .Values.prewarm.images -}}
{{- $rule := pick . "server" "image" -}}
{{- with .code }}{{ $_ := set $rule "code" (printf "/warmstart/code/%s" .) }}{{ end -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- toJson $rules -}}
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
      args: ["prewarm", "--config", "/warmstart/prewarm/config.yaml"{{ if .watch }}, "--watch"{{ end }}]
      env:
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
        {{- if $prewarm.codeConfigMap }}
        - name: warmstart-code
          mountPath: /warmstart/code
          readOnly: true
        {{- end }}
        {{- include "warmstart.workVolumeMounts" (dict "root" $root "readOnly" true "readOnlyStore" true) | nindent 8 }}
  volumes:
    - name: warmstart-prewarm
      configMap:
        name: {{ include "warmstart.fullname" $root }}-prewarm
    {{- with $prewarm.codeConfigMap }}
    - name: warmstart-code
      configMap:
        name: {{ . | quote }}
    {{- end }}
    {{- include "warmstart.workVolumes" (dict "root" $root "readOnly" true "readOnlyStore" true) | nindent 4 }}
{{- end -}}

{{/* What pre-warm reads in a namespace that it looks after. A CronJob does not watch. */}}
{{- define "warmstart.prewarm.readRules" -}}
{{- $verbs := ternary (list "list" "watch") (list "list") (eq .Values.prewarm.mode "watch") | toJson -}}
- apiGroups: ["apps"]
  resources: ["deployments", "statefulsets"]
  verbs: {{ $verbs }}
- apiGroups: ["leaderworkerset.x-k8s.io"]
  resources: ["leaderworkersets"]
  verbs: {{ $verbs }}
{{- range .Values.prewarm.workloads }}
- apiGroups: [{{ .group | quote }}]
  resources: [{{ .plural | quote }}]
  verbs: {{ $verbs }}
{{- end }}
- apiGroups: ["batch"]
  resources: ["jobs"]
  verbs: {{ $verbs }}
# Claims that a pod template names say which GPU type it asks for.
- apiGroups: ["resource.k8s.io"]
  resources: ["resourceclaims", "resourceclaimtemplates"]
  verbs: ["get"]
# An Event that says the same again is counted up.
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
