# Registers the task that calls `runner tick`, for the user who runs this script. `runner setup`
# generated this script but never runs it: read it, then run it yourself in PowerShell:
#   powershell -NoProfile -ExecutionPolicy Bypass -File register-runner-tick.ps1
# To remove the task, run the same command with -Remove at the end.
param([switch]$Remove)
$ErrorActionPreference = 'Stop'
$file = {{ task_file }}
if ($Remove) {
    Unregister-ScheduledTask -TaskPath '\runner\' -TaskName 'tick' -Confirm:$false
    'The task \runner\tick has been removed.'
    return
}
$xml = [System.IO.File]::ReadAllText($file, [System.Text.Encoding]::UTF8)
# Windows stores tasks as UTF-16, so the XML declaration, which names another encoding, is removed.
$xml = $xml -replace '^\s*<\?xml[^>]*\?>\s*', ''
Register-ScheduledTask -TaskPath '\runner\' -TaskName 'tick' -Xml $xml -Force | Out-Null
Get-ScheduledTask -TaskPath '\runner\' -TaskName 'tick' | Get-ScheduledTaskInfo
