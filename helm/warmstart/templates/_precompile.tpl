{{/*
What a precompile Job is given: the manifest, or a Pod made of model, args and env. The image of that Pod has no version, for the entry
does not say which one the servers have: they are said to have the Job's. Call with (dict "entry" $entry "name" $name).
*/}}
{{- define "warmstart.precompile.manifest" -}}
{{- if .entry.manifest -}}
{{- if kindIs "string" .entry.manifest }}{{ .entry.manifest }}{{ else }}{{ toRawJson .entry.manifest }}{{ end -}}
{{- else -}}
{{- $env := list -}}
{{- range $name, $value := .entry.env }}{{ $env = append $env (dict "name" $name "value" $value) }}{{ end -}}
{{- $container := dict
  "name" (.entry.container | default "vllm")
  "image" "vllm"
  "command" (list "vllm" "serve")
  "args" (concat (list .entry.model) (.entry.args | default list))
  "env" $env -}}
{{- toRawJson (dict "apiVersion" "v1" "kind" "Pod" "metadata" (dict "name" .name) "spec" (dict "containers" (list $container))) -}}
{{- end -}}
{{- end -}}

{{/*
The pod spec of a precompile Job. Call with (dict "root" $ "entry" $entry "gpu" $gpu "image" $reference). The workload's spec comes from
an annotation of the pod, which the Downward API shows as a file: no other object is needed, and nothing expands `$(NAME)` in it.
*/}}
{{- define "warmstart.precompile.podSpec" -}}
{{- $root := .root -}}
{{- $job := $root.Values.job -}}
{{- $files := .entry.modelFiles | default dict -}}
restartPolicy: Never
serviceAccountName: {{ include "warmstart.serviceAccountName" $root }}
automountServiceAccountToken: {{ eq $root.Values.claims "lease" }}
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "warmstart.podSecurityContext" $root | nindent 2 }}
{{- with include "warmstart.scheduling" $job }}
{{- . | nindent 0 }}
{{- end }}
containers:
  - name: warmstart
    image: {{ .image | quote }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    args: ["precompile", "-f", "/warmstart/spec/workload.yaml"]
    env:
      {{- include "warmstart.storeEnv" (dict "root" $root) | nindent 6 }}
      {{- include "warmstart.downwardEnv" . | trim | nindent 6 }}
      - name: VLLM_CACHE_ROOT # below that of the workload
        value: {{ $root.Values.cache.path | quote }}
      - name: WARMSTART_IMAGE_MISMATCH
        value: {{ $root.Values.imageMismatch | quote }}
      - name: WARMSTART_CLAIMS
        value: {{ $root.Values.claims | quote }}
      {{- with $job.jobs }}
      - name: WARMSTART_JOBS
        value: {{ . | quote }}
      {{- end }}
      {{- with .gpu }}
      - name: WARMSTART_GPU
        value: {{ . | quote }}
      {{- end }}
      {{- with .entry.container }}
      - name: WARMSTART_CONTAINER
        value: {{ . | quote }}
      {{- end }}
      {{- with include "warmstart.modelFilesEnv" $files }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with $job.extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- with include "warmstart.envFrom" (dict "root" $root) }}
    envFrom:
      {{- . | nindent 6 }}
    {{- end }}
    {{- with .entry.resources | default $job.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- include "warmstart.securityContext" (dict "root" $root "gpu" false) | nindent 6 }}
    terminationMessagePath: /dev/termination-log
    terminationMessagePolicy: FallbackToLogsOnError
    volumeMounts:
      - name: warmstart-spec
        mountPath: /warmstart/spec
        readOnly: true
      {{- include "warmstart.workVolumeMounts" (dict "root" $root "modelFiles" $files) | nindent 6 }}
volumes:
  - name: warmstart-spec
    downwardAPI:
      items:
        - path: workload.yaml
          fieldRef:
            fieldPath: metadata.annotations['warmstart.dev/spec']
  {{- include "warmstart.workVolumes" (dict "root" $root "modelFiles" $files) | nindent 2 }}
{{- end -}}

{{/* How long and how often a Job tries, and what ends it at once. */}}
{{- define "warmstart.jobLimits" -}}
backoffLimit: {{ .Values.job.backoffLimit }}
activeDeadlineSeconds: {{ .Values.job.activeDeadlineSeconds }}
ttlSecondsAfterFinished: {{ .Values.job.ttlSecondsAfterFinished }}
# A second pod only once the first is gone: two that compile for one key do the work twice.
podReplacementPolicy: Failed
podFailurePolicy:
  rules:
    # Wrong configuration, or a model that does not compile: the next try would end the same way.
    - action: FailJob
      onExitCodes:
        containerName: warmstart
        operator: In
        values: [2, 12]
    # Evicted or preempted: not the Job's fault, not counted.
    - action: Ignore
      onPodConditions:
        - type: DisruptionTarget
          status: "True"
{{- end -}}
